// Exact statistics of a sample: nothing is bucketed or estimated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weightless::loadtest {

// Percentile p in [0, 100] of a rising sample, linear between the two nearest ranks: position
// p / 100 * (n - 1), as numpy.percentile does by default. 0 for an empty sample.
double Percentile(std::span<const double> sorted, double p);

struct Distribution {
  size_t count = 0;
  double mean = 0;
  double std = 0;  // of the population
  double min = 0;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};

// All zero for an empty sample.
Distribution Describe(std::vector<double> sample);

enum class Statistic { kMean, kMedian, kP99 };
double Compute(Statistic statistic, std::vector<double> sample);

// The ratio of two paired samples' statistic, B over A, with a bootstrap confidence interval: pairs
// are drawn with replacement `num_resamples` times and the interval is the 2.5th to the 97.5th
// percentile of the ratios (Efron 1979). Pairs keep what both sides share: prompt, time, load.
struct Ratio {
  double value = 0;
  double low = 0;
  double high = 0;
};
Ratio BootstrapRatio(std::span<const double> a, std::span<const double> b, Statistic statistic,
                     uint64_t seed, int num_resamples = 2000);

}  // namespace weightless::loadtest
