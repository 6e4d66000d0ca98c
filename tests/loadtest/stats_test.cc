#include "loadtest/stats.h"

#include <gtest/gtest.h>

#include "loadtest/random.h"

namespace weightless::loadtest {
namespace {

TEST(StatsTest, PercentilesAreLinearBetweenRanks) {
  const std::vector<double> sample = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Percentile(sample, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(sample, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile(sample, 90), 3.7);
  EXPECT_DOUBLE_EQ(Percentile(sample, 99), 3.97);
  EXPECT_DOUBLE_EQ(Percentile(sample, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile({}, 50), 0);
}

TEST(StatsTest, DescribesASample) {
  const Distribution d = Describe({4, 1, 3, 2});
  EXPECT_EQ(d.count, 4u);
  EXPECT_DOUBLE_EQ(d.mean, 2.5);
  EXPECT_DOUBLE_EQ(d.std, std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(d.min, 1);
  EXPECT_DOUBLE_EQ(d.max, 4);
  EXPECT_EQ(Describe({}).count, 0u);
  EXPECT_DOUBLE_EQ(Describe({7}).p99, 7);
}

TEST(StatsTest, RatioOfProportionalPairsIsExact) {
  std::vector<double> a;
  std::vector<double> b;
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    a.push_back(1 + random.Uniform());
    b.push_back(2 * a.back());
  }
  for (const Statistic statistic : {Statistic::kMean, Statistic::kMedian, Statistic::kP99}) {
    const Ratio ratio = BootstrapRatio(a, b, statistic, 3, 200);
    EXPECT_DOUBLE_EQ(ratio.value, 2);
    EXPECT_DOUBLE_EQ(ratio.low, 2);
    EXPECT_DOUBLE_EQ(ratio.high, 2);
  }
}

// 95 of 100 intervals should hold the truth; this seed's share is pinned within three sigma.
TEST(StatsTest, IntervalsCoverTheTruthAsOftenAsTheySay) {
  int num_covered = 0;
  for (uint64_t run = 0; run < 200; ++run) {
    Random random(11, run);
    std::vector<double> a;
    std::vector<double> b;
    for (int i = 0; i < 60; ++i) {
      a.push_back(1 + random.Exponential());
      b.push_back(1.5 * (1 + random.Exponential()));
    }
    const Ratio ratio = BootstrapRatio(a, b, Statistic::kMean, run, 300);
    if (ratio.low <= 1.5 && 1.5 <= ratio.high) ++num_covered;
  }
  EXPECT_GE(num_covered, 178);
  EXPECT_LE(num_covered, 199);
}

TEST(StatsTest, SameSeedSameInterval) {
  const std::vector<double> a = {1, 2, 3, 5};
  const std::vector<double> b = {2, 2, 4, 4};
  const Ratio first = BootstrapRatio(a, b, Statistic::kMean, 5, 100);
  const Ratio second = BootstrapRatio(a, b, Statistic::kMean, 5, 100);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
}

}  // namespace
}  // namespace weightless::loadtest
