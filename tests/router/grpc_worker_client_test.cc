#include "router/grpc_worker_client.h"

#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weightless::router {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// Counts lost connections.
class Listener : public WorkerListener {
 public:
  void OnReady(uint64_t, WorkerHello) override {}
  void OnResult(uint64_t, proto::StepResult) override {}
  void OnLost(uint64_t, absl::Status) override {
    absl::MutexLock lock(&mutex_);
    ++num_lost_;
  }

  bool AwaitLost(int count) {
    const auto reached = [&] { return num_lost_ >= count; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

 private:
  absl::Mutex mutex_;
  int num_lost_ = 0;
};

// No gRPC server may live in this process: it would keep the threads that run callbacks alive, and
// hide what happens when the last connection takes them along.

TEST(GrpcWorkerClientTest, ConnectionsToNobodyFailOneAfterAnother) {
  Listener listener;
  const auto client = MakeGrpcWorkerClient("127.0.0.1:1");
  for (int i = 1; i <= 300; ++i) {
    client->Connect({.connection_id = static_cast<uint64_t>(i), .listener = &listener});
    ASSERT_TRUE(listener.AwaitLost(i));
  }
}

TEST(GrpcWorkerClientTest, AnAttemptCanBeGivenUpAtOnce) {
  Listener listener;
  const auto client = MakeGrpcWorkerClient("127.0.0.1:1");
  for (int i = 1; i <= 300; ++i) {
    client->Connect({.connection_id = static_cast<uint64_t>(i), .listener = &listener});
    client->Disconnect();
  }
  EXPECT_TRUE(listener.AwaitLost(300));
}

}  // namespace
}  // namespace weightless::router
