#include "router/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "router/delayed_worker_client.h"
#include "router/grpc_worker_client.h"
#include "tests/router/cluster.h"
#include "tests/support/fake_worker_server.h"

namespace weightless::router {
namespace {

using testing::Client;
using testing::ExpectedOutput;
using testing::FakeModel;
using testing::FakeWorkerOptions;
using testing::FakeWorkerServer;
using ::testing::HasSubstr;
using testing::MakeRequest;

constexpr absl::Duration kPatience = absl::Seconds(20);

const std::map<std::string, std::string>& TinyFiles() {
  static const auto& files = *new std::map<std::string, std::string>(
      *testing::ReadModelFiles(WEIGHTLESS_SOURCE_DIR "/models/tiny-gemma3"));
  return files;
}

// The fake's vocabulary need not be that of the tokenizer: no text is made here.
FakeWorkerOptions WorkerOptions() {
  return {.model = {.vocab_size = 4096, .stop_one_in = 40}, .files = TinyFiles()};
}

std::unique_ptr<FakeWorkerServer> StartWorker(const FakeWorkerOptions& options = WorkerOptions()) {
  auto server = FakeWorkerServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string AddressOf(const FakeWorkerServer& server) {
  return "127.0.0.1:" + std::to_string(server.port());
}

// One router over loopback.
struct Router {
  explicit Router(const std::vector<std::string>& addresses, const EngineConfig& config = {},
                  absl::Duration delay = absl::ZeroDuration()) {
    std::vector<WorkerEndpoint> endpoints;
    for (const std::string& address : addresses) {
      std::unique_ptr<WorkerClient> client = MakeGrpcWorkerClient(address);
      if (delay > absl::ZeroDuration()) client = MakeDelayedWorkerClient(std::move(client), delay);
      endpoints.push_back({.address = address, .client = std::move(client)});
    }
    loop = std::make_unique<EngineLoop>(config, std::move(endpoints), metrics, clock);
  }

  // Waits for what other threads do; polling, because the loop tells nobody.
  template <typename Condition>
  bool Await(Condition condition) const {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  bool AwaitReady() const {
    return Await([this] { return loop->Admit("", 1).ok(); });
  }

  RealClock clock;
  RouterMetrics metrics;
  std::unique_ptr<EngineLoop> loop;
};

// A client on the consumer's side of the loop.
struct Consumer {
  Client client;
  absl::Mutex mutex;
  bool has_news = false;

  explicit Consumer(SequenceRequest request) {
    client.request = std::move(request);
    client.stream = std::make_shared<TokenStream>([this] {
      absl::MutexLock lock(&mutex);
      has_news = true;
    });
  }
  absl::Status SubmitTo(EngineLoop& loop) { return loop.Submit({client.request}, {client.stream}); }
  // Reads until the end; false when it does not come.
  bool ReadToEnd() {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!client.end.has_value()) {
      {
        absl::MutexLock lock(&mutex);
        if (!mutex.AwaitWithDeadline(absl::Condition(&has_news), deadline)) return false;
        has_news = false;
      }
      client.Read();
    }
    return true;
  }
  std::vector<int32_t> Expected() const {
    return ExpectedOutput(WorkerOptions().model, client.request.prompt, client.request.sampling,
                          client.request.max_tokens);
  }
};

TEST(EngineLoopTest, ServesOverGrpc) {
  const auto worker = StartWorker();
  Router router({AddressOf(*worker)});
  ASSERT_TRUE(router.AwaitReady());
  ASSERT_NE(router.loop->model(), nullptr);
  EXPECT_GT(router.loop->model()->tokenizer->vocab_size(), 0);

  std::vector<std::unique_ptr<Consumer>> consumers;
  for (int i = 0; i < 20; ++i) {
    consumers.push_back(std::make_unique<Consumer>(MakeRequest(5 + i, 100 - i, i + 1)));
    ASSERT_TRUE(consumers.back()->SubmitTo(*router.loop).ok());
  }
  for (const auto& consumer : consumers) {
    ASSERT_TRUE(consumer->ReadToEnd());
    EXPECT_EQ(consumer->client.output, consumer->Expected());
  }
  EXPECT_TRUE(worker->violation().ok()) << worker->violation();
}

TEST(EngineLoopTest, WithoutWorkersIsUnavailableAndRecovers) {
  FakeWorkerOptions options = WorkerOptions();
  auto worker = StartWorker(options);
  options.address = AddressOf(*worker);
  worker.reset();

  Router router({options.address});
  EXPECT_TRUE(absl::IsUnavailable(router.loop->Admit("", 1)));
  EXPECT_EQ(router.loop->model(), nullptr);
  worker = StartWorker(options);
  EXPECT_TRUE(router.AwaitReady());
}

TEST(EngineLoopTest, ContinuesElsewhereWhenAWorkerGoes) {
  std::atomic<int> num_steps = 0;
  FakeWorkerOptions options = WorkerOptions();
  options.step_time = absl::Microseconds(200);
  options.on_step = [&](uint64_t) { ++num_steps; };
  auto first = StartWorker(options);
  options.on_step = {};
  const auto second = StartWorker(options);
  Router router({AddressOf(*first), AddressOf(*second)});
  ASSERT_TRUE(router.Await([&] {
    const Loads loads = router.loop->loads();
    return loads.replicas.size() == 2 && loads.replicas[0].ready && loads.replicas[1].ready;
  }));

  std::vector<std::unique_ptr<Consumer>> consumers;
  for (int i = 0; i < 16; ++i) {
    SequenceRequest request = MakeRequest(10 + i, 150, i + 1);
    request.sampling.set_min_tokens(150);
    consumers.push_back(std::make_unique<Consumer>(std::move(request)));
    ASSERT_TRUE(consumers.back()->SubmitTo(*router.loop).ok());
  }
  ASSERT_TRUE(router.Await([&] { return num_steps > 20; }));
  first.reset();
  for (const auto& consumer : consumers) {
    ASSERT_TRUE(consumer->ReadToEnd());
    EXPECT_EQ(consumer->client.output, consumer->Expected());
  }
  EXPECT_GT(router.metrics.migrations.value(), 0);
  EXPECT_TRUE(second->violation().ok()) << second->violation();
}

TEST(EngineLoopTest, RefusesWhatCanNeverFit) {
  const auto worker = StartWorker();
  Router router({AddressOf(*worker)});
  ASSERT_TRUE(router.AwaitReady());
  Consumer consumer(MakeRequest(150, 51));
  const absl::Status status = consumer.SubmitTo(*router.loop);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("make 201, more than the 200 that any worker holds"));
}

TEST(EngineLoopTest, RefusesTokensWithoutAnEmbedding) {
  const auto worker = StartWorker();
  Router router({AddressOf(*worker)});
  ASSERT_TRUE(router.AwaitReady());
  SequenceRequest request = MakeRequest(3, 5);
  request.prompt[2] = 4096;
  Consumer consumer(std::move(request));
  const absl::Status status = consumer.SubmitTo(*router.loop);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "prompt token 4096 at position 2 is outside the model's vocabulary of 4096");
}

TEST(EngineLoopTest, DrainLetsRunningSequencesFinish) {
  const auto worker = StartWorker();
  Router router({AddressOf(*worker)});
  ASSERT_TRUE(router.AwaitReady());
  Consumer consumer(MakeRequest(10, 150));
  ASSERT_TRUE(consumer.SubmitTo(*router.loop).ok());
  router.loop->Drain(absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsUnavailable(router.loop->Admit("", 1)));
  consumer.client.Read();
  EXPECT_EQ(consumer.client.output, consumer.Expected());
  EXPECT_NE(consumer.client.end, EndReason::kError);
}

TEST(EngineLoopTest, DrainEndsTheRestAtItsDeadline) {
  FakeWorkerOptions options = WorkerOptions();
  options.step_time = absl::Milliseconds(50);
  const auto worker = StartWorker(options);
  Router router({AddressOf(*worker)});
  ASSERT_TRUE(router.AwaitReady());
  SequenceRequest request = MakeRequest(10, 150);
  request.sampling.set_min_tokens(150);
  Consumer consumer(std::move(request));
  ASSERT_TRUE(consumer.SubmitTo(*router.loop).ok());
  router.loop->Drain(router.clock.Now() + absl::Milliseconds(20));
  consumer.client.Read();
  EXPECT_EQ(consumer.client.end, EndReason::kError);
  EXPECT_TRUE(absl::IsUnavailable(consumer.client.status));
}

TEST(EngineLoopTest, ASecondRouterWaitsForTheOwnerToLeave) {
  const auto worker = StartWorker();
  auto first = std::make_unique<Router>(std::vector<std::string>{AddressOf(*worker)});
  ASSERT_TRUE(first->AwaitReady());
  Router second({AddressOf(*worker)});
  ASSERT_TRUE(second.Await([&] { return second.loop->model() == nullptr; }));
  EXPECT_TRUE(absl::IsUnavailable(second.loop->Admit("", 1)));
  first.reset();
  EXPECT_TRUE(second.AwaitReady());
}

TEST(EngineLoopTest, DelayedStreamKeepsOrderAndResults) {
  const auto worker = StartWorker();
  Router router({AddressOf(*worker)}, {.plan_ahead = 8}, absl::Milliseconds(1));
  ASSERT_TRUE(router.AwaitReady());
  Consumer consumer(MakeRequest(10, 60));
  ASSERT_TRUE(consumer.SubmitTo(*router.loop).ok());
  ASSERT_TRUE(consumer.ReadToEnd());
  EXPECT_EQ(consumer.client.output, consumer.Expected());
}

}  // namespace
}  // namespace weightless::router
