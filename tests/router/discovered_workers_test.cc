// Workers that join and leave while the router runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/engine_loop.h"
#include "router/grpc_worker_client.h"
#include "tests/support/fake_worker_server.h"

namespace weightless::router {
namespace {

using ::testing::ElementsAre;
using testing::FakeWorkerServer;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::unique_ptr<FakeWorkerServer> StartWorker() {
  static const auto& files = *new std::map<std::string, std::string>(
      *testing::ReadModelFiles(WEIGHTLESS_SOURCE_DIR "/models/tiny-gemma3"));
  auto server = FakeWorkerServer::Start({.model = {.vocab_size = 4096}, .files = files});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string AddressOf(const FakeWorkerServer& server) {
  return "127.0.0.1:" + std::to_string(server.port());
}

// A router that is told of its workers.
class Router {
 public:
  explicit Router(const std::vector<std::string>& configured = {}) {
    std::vector<WorkerEndpoint> endpoints;
    for (const std::string& address : configured) {
      endpoints.push_back({.address = address, .client = MakeGrpcWorkerClient(address)});
    }
    loop_ = std::make_unique<EngineLoop>(EngineConfig{}, std::move(endpoints), metrics_, clock_,
                                         MakeGrpcWorkerClient);
  }

  EngineLoop& loop() { return *loop_; }

  std::vector<std::string> Addresses(bool ready_only = true) const {
    std::vector<std::string> addresses;
    for (const ReplicaLoad& load : loop_->loads().replicas) {
      if (load.ready || !ready_only) addresses.push_back(load.address);
    }
    return addresses;
  }
  // Waits for what the loop's thread does; polling, because it tells nobody.
  template <typename Condition>
  bool Await(Condition condition) const {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  bool AwaitReady(size_t count) const {
    return Await([&] { return Addresses().size() == count; });
  }
  bool AwaitKnown(size_t count) const {
    return Await([&] { return Addresses(/*ready_only=*/false).size() == count; });
  }

 private:
  RealClock clock_;
  RouterMetrics metrics_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST(DiscoveredWorkersTest, JoinARouterThatHasNone) {
  Router router;
  EXPECT_THAT(router.Addresses(), IsEmpty());
  const auto first = StartWorker();
  const auto second = StartWorker();
  router.loop().SetDiscovered({AddressOf(*first), AddressOf(*second)});
  EXPECT_TRUE(router.AwaitReady(2));
  EXPECT_THAT(router.Addresses(), UnorderedElementsAre(AddressOf(*first), AddressOf(*second)));
}

TEST(DiscoveredWorkersTest, StayAsLongAsTheyAnswer) {
  Router router;
  const auto first = StartWorker();
  const auto second = StartWorker();
  router.loop().SetDiscovered({AddressOf(*first)});
  ASSERT_TRUE(router.AwaitReady(1));
  router.loop().SetDiscovered({AddressOf(*second)});
  ASSERT_TRUE(router.AwaitReady(2));
  EXPECT_THAT(router.Addresses(), UnorderedElementsAre(AddressOf(*first), AddressOf(*second)));
}

TEST(DiscoveredWorkersTest, AreForgottenWhenGoneAndTheirPlaceIsUsedAgain) {
  Router router;
  auto first = StartWorker();
  const auto second = StartWorker();
  router.loop().SetDiscovered({AddressOf(*first)});
  ASSERT_TRUE(router.AwaitReady(1));
  first.reset();
  router.loop().SetDiscovered({});
  ASSERT_TRUE(router.AwaitKnown(0));
  router.loop().SetDiscovered({AddressOf(*second)});
  ASSERT_TRUE(router.AwaitReady(1));
  EXPECT_THAT(router.Addresses(/*ready_only=*/false), ElementsAre(AddressOf(*second)));
}

TEST(DiscoveredWorkersTest, LeaveConfiguredOnesAlone) {
  auto configured = StartWorker();
  const std::string address = AddressOf(*configured);
  Router router({address});
  ASSERT_TRUE(router.AwaitReady(1));
  router.loop().SetDiscovered({address});
  const auto other = StartWorker();
  router.loop().SetDiscovered({AddressOf(*other)});
  ASSERT_TRUE(router.AwaitReady(2));
  configured.reset();
  ASSERT_TRUE(router.AwaitReady(1));
  EXPECT_THAT(router.Addresses(/*ready_only=*/false), ElementsAre(address, AddressOf(*other)));
}

}  // namespace
}  // namespace weightless::router
