#include "router/grpc_worker_client.h"

#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/support/fake_worker_server.h"

namespace weightless::router {
namespace {

using testing::FakeWorkerServer;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Counts what a client tells.
class Listener : public WorkerListener {
 public:
  void OnReady(uint64_t, WorkerHello) override { Count(num_ready_); }
  void OnResult(uint64_t, proto::StepResult) override {}
  void OnLost(uint64_t, absl::Status) override { Count(num_lost_); }

  bool AwaitReady(int count) { return Await(num_ready_, count); }
  bool AwaitLost(int count) { return Await(num_lost_, count); }

 private:
  void Count(int& number) {
    absl::MutexLock lock(&mutex_);
    ++number;
  }
  bool Await(const int& number, int count) {
    const auto reached = [&] { return number >= count; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

  absl::Mutex mutex_;
  int num_ready_ = 0, num_lost_ = 0;
};

TEST(GrpcWorkerClientTest, TheOnlyConnectionCanBeGivenUpAgainAndAgain) {
  auto server = FakeWorkerServer::Start({.model = {}});
  ASSERT_TRUE(server.ok()) << server.status();
  Listener listener;
  const auto client = MakeGrpcWorkerClient("127.0.0.1:" + std::to_string((*server)->port()));
  for (int i = 1; i <= 30; ++i) {
    client->Connect({.connection_id = static_cast<uint64_t>(i), .listener = &listener});
    ASSERT_TRUE(listener.AwaitReady(i));
    client->Disconnect();
    ASSERT_TRUE(listener.AwaitLost(i));
  }
}

TEST(GrpcWorkerClientTest, ConnectionsToNobodyFailOneAfterAnother) {
  Listener listener;
  const auto client = MakeGrpcWorkerClient("127.0.0.1:1");
  for (int i = 1; i <= 30; ++i) {
    client->Connect({.connection_id = static_cast<uint64_t>(i), .listener = &listener});
    ASSERT_TRUE(listener.AwaitLost(i));
  }
}

TEST(GrpcWorkerClientTest, AnAttemptCanBeGivenUpAtOnce) {
  Listener listener;
  const auto client = MakeGrpcWorkerClient("127.0.0.1:1");
  for (int i = 1; i <= 30; ++i) {
    client->Connect({.connection_id = static_cast<uint64_t>(i), .listener = &listener});
    client->Disconnect();
  }
  EXPECT_TRUE(listener.AwaitLost(30));
}

}  // namespace
}  // namespace weightless::router
