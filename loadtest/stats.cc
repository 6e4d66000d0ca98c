#include "loadtest/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "loadtest/random.h"

namespace weightless::loadtest {
namespace {

double Mean(std::span<const double> sample) {
  if (sample.empty()) return 0;
  return std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
}

}  // namespace

double Percentile(std::span<const double> sorted, double p) {
  if (sorted.empty()) return 0;
  const double position = p / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = std::min(static_cast<size_t>(position), sorted.size() - 1);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

Distribution Describe(std::vector<double> sample) {
  Distribution out;
  if (sample.empty()) return out;
  std::sort(sample.begin(), sample.end());
  out.count = sample.size();
  out.mean = Mean(sample);
  double squares = 0;
  for (const double value : sample) squares += (value - out.mean) * (value - out.mean);
  out.std = std::sqrt(squares / static_cast<double>(sample.size()));
  out.min = sample.front();
  out.p50 = Percentile(sample, 50);
  out.p90 = Percentile(sample, 90);
  out.p95 = Percentile(sample, 95);
  out.p99 = Percentile(sample, 99);
  out.max = sample.back();
  return out;
}

double Compute(Statistic statistic, std::vector<double> sample) {
  if (statistic == Statistic::kMean) return Mean(sample);
  std::sort(sample.begin(), sample.end());
  return Percentile(sample, statistic == Statistic::kMedian ? 50 : 99);
}

Ratio BootstrapRatio(std::span<const double> a, std::span<const double> b, Statistic statistic,
                     uint64_t seed, int num_resamples) {
  CHECK(a.size() == b.size());
  if (a.empty()) return {};
  std::vector<double> drawn_a(a.begin(), a.end());
  std::vector<double> drawn_b(b.begin(), b.end());
  const auto ratio = [&] {
    const double below = Compute(statistic, drawn_a);
    return below > 0 ? Compute(statistic, drawn_b) / below : 0;
  };
  Ratio out{.value = ratio()};
  Random random(seed);
  std::vector<double> ratios;
  for (int i = 0; i < num_resamples; ++i) {
    for (size_t k = 0; k < a.size(); ++k) {
      const size_t pair_idx = random.Below(a.size());
      drawn_a[k] = a[pair_idx];
      drawn_b[k] = b[pair_idx];
    }
    ratios.push_back(ratio());
  }
  std::sort(ratios.begin(), ratios.end());
  out.low = Percentile(ratios, 2.5);
  out.high = Percentile(ratios, 97.5);
  return out;
}

}  // namespace weightless::loadtest
