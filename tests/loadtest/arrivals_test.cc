#include "loadtest/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loadtest/stats.h"

namespace weightless::loadtest {
namespace {

using ::testing::ElementsAre;

std::vector<double> Offsets(const ArrivalConfig& config, Arrivals::Extent extent,
                            const std::vector<TraceEntry>& trace = {}) {
  Arrivals arrivals(config, 42, extent, trace);
  std::vector<double> offsets;
  while (const auto offset = arrivals.Next()) offsets.push_back(*offset);
  return offsets;
}

Distribution Gaps(const std::vector<double>& offsets) {
  std::vector<double> gaps;
  for (size_t i = 1; i < offsets.size(); ++i) gaps.push_back(offsets[i] - offsets[i - 1]);
  return Describe(gaps);
}

TEST(ArrivalsTest, ConstantRateHasEqualGaps) {
  const auto offsets =
      Offsets({.rate = 4, .kind = ArrivalKind::kConstant, .trace_file = {}}, {5, {}});
  EXPECT_THAT(offsets, ElementsAre(0, 0.25, 0.5, 0.75, 1.0));
}

TEST(ArrivalsTest, PoissonGapsHaveTheMeanAndSpreadOfAnExponential) {
  const Distribution gaps = Gaps(Offsets({.rate = 10, .trace_file = {}}, {20000, {}}));
  EXPECT_NEAR(gaps.mean, 0.1, 0.003);
  EXPECT_NEAR(gaps.std, 0.1, 0.003);
}

TEST(ArrivalsTest, GammaGapsKeepTheRateAndAreBurstier) {
  for (const double shape : {0.25, 4.0}) {
    const Distribution gaps = Gaps(
        Offsets({.rate = 10, .kind = ArrivalKind::kGamma, .burstiness = shape, .trace_file = {}},
                {40000, {}}));
    EXPECT_NEAR(gaps.mean, 0.1, 0.004);
    EXPECT_NEAR(gaps.std / gaps.mean, 1 / std::sqrt(shape), 0.05);
  }
}

TEST(ArrivalsTest, DurationEndsThem) {
  const auto offsets =
      Offsets({.rate = 100, .kind = ArrivalKind::kConstant, .trace_file = {}}, {1000, 0.5});
  EXPECT_EQ(offsets.size(), 50u);
}

TEST(ArrivalsTest, RampsGoFromStartToEnd) {
  for (const RampKind ramp : {RampKind::kLinear, RampKind::kExponential}) {
    const auto offsets = Offsets({.rate = {},
                                  .kind = ArrivalKind::kConstant,
                                  .ramp = ramp,
                                  .ramp_start_rate = 1,
                                  .ramp_end_rate = 100,
                                  .trace_file = {}},
                                 {200, {}});
    ASSERT_EQ(offsets.size(), 200u);
    EXPECT_NEAR(offsets[1] - offsets[0], 1, 0.4);
    EXPECT_NEAR(offsets[199] - offsets[198], 0.01, 0.001);
  }
}

ArrivalConfig Ramp(RampKind kind, double start, double end, ArrivalKind arrival) {
  return {.rate = {},
          .kind = arrival,
          .ramp = kind,
          .ramp_start_rate = start,
          .ramp_end_rate = end,
          .trace_file = {}};
}

// As many as the integral of the rate: 60 s from 0.01/s to 20/s, with the first at 0, are 600.3.
TEST(ArrivalsTest, RampsByTimeSendTheIntegralOfTheRate) {
  const auto count = [](RampKind kind, double start, double end, ArrivalKind arrival) {
    return static_cast<double>(Offsets(Ramp(kind, start, end, arrival), {1'000'000, 60.0}).size());
  };
  const ArrivalKind constant = ArrivalKind::kConstant;
  EXPECT_NEAR(count(RampKind::kLinear, 0.01, 20, constant), 600, 2);
  EXPECT_NEAR(count(RampKind::kLinear, 20, 0.01, constant), 600, 2);
  EXPECT_NEAR(count(RampKind::kExponential, 0.01, 20, constant), 60 * 19.99 / std::log(2000), 2);
  EXPECT_NEAR(count(RampKind::kExponential, 20, 0.01, constant), 60 * 19.99 / std::log(2000), 2);
  EXPECT_NEAR(count(RampKind::kExponential, 5, 5, constant), 300, 2);
  EXPECT_NEAR(count(RampKind::kLinear, 1, 400, ArrivalKind::kPoisson), 12030, 330);  // 3 sigma
}

// The rate is a function of the number sent, so the time is the integral of its inverse.
TEST(ArrivalsTest, RampsByNumberTakeTheIntegralOfTheGap) {
  const auto end = [](RampKind kind, double start, double stop) {
    return Offsets(Ramp(kind, start, stop, ArrivalKind::kConstant), {101, {}}).back();
  };
  EXPECT_NEAR(end(RampKind::kLinear, 0.1, 10), 100 / 9.9 * std::log(100), 1e-6);
  EXPECT_NEAR(end(RampKind::kLinear, 10, 0.1), 100 / 9.9 * std::log(100), 1e-6);
  EXPECT_NEAR(end(RampKind::kExponential, 0.1, 10), (10 - 0.1) * 100 / std::log(100), 1e-6);
}

TEST(ArrivalsTest, TraceIsReplayed) {
  const std::vector<TraceEntry> trace = {{0, 1, 1, {}}, {0.5, 1, 1, {}}, {0.5, 1, 1, {}}};
  EXPECT_THAT(Offsets({.rate = {}, .trace_file = "t"}, {100, {}}, trace), ElementsAre(0, 0.5, 0.5));
}

TEST(ArrivalsTest, SameSeedSameTimes) {
  const ArrivalConfig config{
      .rate = 5, .kind = ArrivalKind::kGamma, .burstiness = 0.5, .trace_file = {}};
  EXPECT_EQ(Offsets(config, {100, {}}), Offsets(config, {100, {}}));
}

TEST(TraceTest, ReadsLinesSortsThemAndNamesABadOne) {
  const auto trace = ParseTrace(
      "{\"timestamp\": 3000, \"input_length\": 5, \"output_length\": 6}\n\n"
      "{\"timestamp\": 1000, \"input_length\": 7, \"output_length\": 8, \"hash_ids\": [1, 2]}\n",
      2);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_DOUBLE_EQ((*trace)[1].offset_seconds, 1);
  EXPECT_THAT((*trace)[0].hash_ids, ElementsAre(1, 2));
  EXPECT_THAT(
      std::string(ParseTrace("{\"timestamp\": 1, \"input_length\": 0}", 1).status().message()),
      ::testing::HasSubstr("line 1: input_length 0 is not between 1"));
  EXPECT_FALSE(ParseTrace("", 1).ok());
  EXPECT_FALSE(ParseTrace("[]", 1).ok());
}

}  // namespace
}  // namespace weightless::loadtest
