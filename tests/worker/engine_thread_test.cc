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

}  // namespace
}  // namespace weightless::worker
