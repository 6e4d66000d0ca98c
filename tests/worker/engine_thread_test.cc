// The lease on the engine, when streams break while their plans are under way.
#include "worker/engine_thread.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "common/worker_facts.h"
#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

// By steps in flight.
class EngineThreadTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineThreadTest, testing::Values(1, 3));

proto::StepPlan FirstPlan() {
  proto::StepPlan plan;
  plan.set_step(1);
  const std::vector<int32_t> prompt = {2, 3, 4};
  AddAdmit(plan, 0, prompt);
  AddBlocks(plan, 0, 0, {0}, {0});
  AddPrefill(plan, 0, static_cast<int>(prompt.size()));
  return plan;
}

proto::StepPlan DecodePlan(uint64_t step) {
  proto::StepPlan plan;
  plan.set_step(step);
  SetDecode(plan, {0});
  return plan;
}

// gRPC may still hand over a plan when it has already said that the stream is broken.
TEST_P(EngineThreadTest, APlanThatComesAfterItsStreamBrokeDoesNothing) {
  const auto engine = MakeTestEngine({.engine = {.num_slots = 8,
                                                 .num_full_blocks = 64,
                                                 .num_sliding_blocks = 64,
                                                 .steps_in_flight = GetParam()}});
  WorkerMetrics metrics(WorkerFacts{});
  EngineThread thread(*engine, metrics);
  const StreamEvents silent = {.on_result = [](const proto::StepResult&) {},
                               .on_end = [](const absl::Status&) {}};
  const auto broken = thread.Open("router-1", silent);
  ASSERT_TRUE(broken.ok()) << broken.status();
  ASSERT_TRUE(thread.Submit(*broken, FirstPlan()).ok());
  thread.Abort(*broken);

  absl::Notification done;
  absl::Status end;
  const auto next = thread.Open("router-2", {.on_result =
                                                 [&](const proto::StepResult& result) {
                                                   if (result.step() == 2) done.Notify();
                                                 },
                                             .on_end =
                                                 [&](const absl::Status& status) {
                                                   end = status;
                                                   done.Notify();
                                                 }});
  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_TRUE(thread.Submit(*next, FirstPlan()).ok());
  ASSERT_TRUE(thread.Submit(*broken, DecodePlan(2)).ok());
  ASSERT_TRUE(thread.Submit(*next, DecodePlan(2)).ok());
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_TRUE(end.ok()) << end;
}

// An engine that is held in its first result, with the plans of `stream` behind it.
class HeldEngine {
 public:
  explicit HeldEngine(int steps_in_flight)
      : engine_(MakeTestEngine({.engine = {.num_slots = 8,
                                           .num_full_blocks = 64,
                                           .num_sliding_blocks = 64,
                                           .steps_in_flight = steps_in_flight}})),
        metrics_(WorkerFacts{}),
        thread_(*engine_, metrics_) {
    first_ = Open([this] {
      held_.Notify();
      release_.WaitForNotification();
    });
    EXPECT_TRUE(thread_.Submit(first_, FirstPlan()).ok());
    held_.WaitForNotification();
  }
  ~HeldEngine() {
    if (!release_.HasBeenNotified()) release_.Notify();
  }

  std::shared_ptr<EngineThread::Stream> Open(std::function<void()> on_result) {
    auto stream = thread_.Open(
        "router",
        {.on_result = [on_result = std::move(on_result)](const proto::StepResult&) { on_result(); },
         .on_end = [](const absl::Status&) {}});
    EXPECT_TRUE(stream.ok()) << stream.status();
    return *std::move(stream);
  }
  void Release() { release_.Notify(); }
  EngineThread& thread() { return thread_; }
  const std::shared_ptr<EngineThread::Stream>& first() { return first_; }

 private:
  absl::Notification held_, release_;
  const std::unique_ptr<Engine> engine_;
  WorkerMetrics metrics_;
  EngineThread thread_;
  std::shared_ptr<EngineThread::Stream> first_;
};

TEST_P(EngineThreadTest, QueuedPlansAreBoundedInBytes) {
  HeldEngine engine(GetParam());
  absl::Status status;
  int num_taken = 0;
  for (; status.ok() && num_taken < 100; ++num_taken) {
    proto::StepPlan plan = DecodePlan(2);
    plan.set_owner(std::string(size_t{40} << 20, 'x'));
    status = engine.thread().Submit(engine.first(), std::move(plan));
  }
  EXPECT_EQ(num_taken, 7);  // six are 240 MiB
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "queued plans exceed 268435456 bytes");
}

TEST_P(EngineThreadTest, BrokenStreamsLeaveRoomForTheNext) {
  HeldEngine engine(GetParam());
  engine.thread().Abort(engine.first());
  for (int i = 0; i < 5; ++i) {
    const auto broken = engine.Open([] {});
    for (int plan = 0; plan < kMaxPlansInFlight; ++plan) {
      ASSERT_TRUE(engine.thread().Submit(broken, DecodePlan(2)).ok());
    }
    engine.thread().Abort(broken);
  }
  absl::Notification answered;
  const auto next = engine.Open([&] { answered.Notify(); });
  const absl::Status status = engine.thread().Submit(next, FirstPlan());
  EXPECT_TRUE(status.ok()) << status;
  engine.Release();
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

}  // namespace
}  // namespace weightless::worker
