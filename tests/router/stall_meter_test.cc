#include "router/stall_meter.h"

#include <gtest/gtest.h>

namespace weightless::router {
namespace {

absl::Time At(int ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }
constexpr absl::Duration kStep = absl::Milliseconds(3);

// A worker 2 ms away (4 ms there and back) with steps of 3 ms.
TEST(StallMeterTest, APlanAfterTheResultIsLate) {
  StallMeter meter;
  EXPECT_FALSE(meter.OnSent(At(0), false));
  EXPECT_FALSE(meter.OnResult(At(7), kStep));
  EXPECT_TRUE(meter.OnSent(At(8), true));
}

TEST(StallMeterTest, ANewSequenceAfterAPauseIsNotLate) {
  StallMeter meter;
  meter.OnSent(At(0), false);
  meter.OnResult(At(7), kStep);
  EXPECT_FALSE(meter.OnSent(At(100), false));
}

TEST(StallMeterTest, APlanInTimeIsNotLate) {
  StallMeter meter;
  meter.OnSent(At(0), false);
  EXPECT_FALSE(meter.OnSent(At(0), true));
  EXPECT_FALSE(meter.OnResult(At(7), kStep));   // step 1 ended at 5
  EXPECT_FALSE(meter.OnResult(At(10), kStep));  // step 2 at 8
}

TEST(StallMeterTest, APlanThatArrivesAfterTheStepBeforeIsLate) {
  StallMeter meter;
  meter.OnSent(At(0), false);
  meter.OnSent(At(4), true);  // reaches the worker at 6
  EXPECT_TRUE(meter.OnResult(At(7), kStep));
}

TEST(StallMeterTest, LearnsTheTransitTimeFromTheBestStep) {
  StallMeter meter;
  meter.OnSent(At(0), false);
  meter.OnResult(At(7), kStep);  // 4 ms
  meter.OnSent(At(10), false);
  meter.OnSent(At(12), true);
  EXPECT_FALSE(meter.OnResult(At(14), kStep));  // 1 ms: the plan sent at 12 was there in time
}

}  // namespace
}  // namespace weightless::router
