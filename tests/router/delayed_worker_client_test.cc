#include "router/delayed_worker_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace weightless::router {
namespace {

constexpr absl::Duration kDelay = absl::Milliseconds(5);

// Answers every plan at once.
class EchoClient : public WorkerClient {
 public:
  void Connect(const ConnectOptions& options) override {
    options_ = options;
    options_.listener->OnReady(options_.connection_id, {});
  }
  void Send(proto::StepPlan plan) override {
    proto::StepResult result;
    result.set_step(plan.step());
    options_.listener->OnResult(options_.connection_id, std::move(result));
  }
  void Disconnect() override {}

 private:
  ConnectOptions options_;
};

class Recorder : public WorkerListener {
 public:
  void OnReady(uint64_t, WorkerHello) override { Add(0); }
  void OnResult(uint64_t, proto::StepResult result) override { Add(result.step()); }
  void OnLost(uint64_t, absl::Status) override {}
  // False when they do not come.
  bool Await(size_t num_events) {
    absl::MutexLock lock(&mutex_);
    wanted_ = num_events;
    return mutex_.AwaitWithTimeout(absl::Condition(this, &Recorder::HasEnough), absl::Seconds(20));
  }
  std::vector<uint64_t> events() {
    absl::MutexLock lock(&mutex_);
    return events_;
  }

 private:
  void Add(uint64_t event) {
    absl::MutexLock lock(&mutex_);
    events_.push_back(event);
  }
  bool HasEnough() const { return events_.size() >= wanted_; }

  absl::Mutex mutex_;
  std::vector<uint64_t> events_;
  size_t wanted_ = 0;
};

TEST(DelayedWorkerClientTest, DelaysBothWaysAndKeepsOrder) {
  Recorder recorder;
  const auto client = MakeDelayedWorkerClient(std::make_unique<EchoClient>(), kDelay);
  const absl::Time start = absl::Now();
  client->Connect({.connection_id = 1, .listener = &recorder});
  for (uint64_t step = 1; step <= 5; ++step) {
    proto::StepPlan plan;
    plan.set_step(step);
    client->Send(std::move(plan));
  }
  ASSERT_TRUE(recorder.Await(6));
  EXPECT_GE(absl::Now() - start, 2 * kDelay);
  EXPECT_THAT(recorder.events(), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace weightless::router
