#include "loadtest/compare.h"

#include <array>
#include <functional>
#include <map>
#include <optional>

#include "loadtest/summary.h"

namespace weightless::loadtest {
namespace {

using Pair = std::array<const Record*, 2>;
using Measure = std::function<std::optional<double>(const Record&)>;

std::vector<Pair> CompletedPairs(const std::deque<Record>& records) {
  std::map<size_t, Pair> by_index;
  for (const Record& record : records) {
    if (record.outcome == Outcome::kCompleted && record.target < 2) {
      by_index[record.index][record.target] = &record;
    }
  }
  std::vector<Pair> pairs;
  for (const auto& [index, pair] : by_index) {
    if (pair[0] != nullptr && pair[1] != nullptr) pairs.push_back(pair);
  }
  return pairs;
}

std::optional<double> TokensPerSecond(const Record& record) {
  const double e2e = Seconds(record.ended - record.sent);
  if (e2e <= 0) return std::nullopt;
  return static_cast<double>(OutputTokens(record)) / e2e;
}

struct RowSpec {
  const char* name;
  const char* unit;
  double scale;
  Statistic statistic;
  Measure measure;
};

std::vector<RowSpec> RowSpecs() {
  const Measure ttft = [](const Record& r) { return LatenciesOf(r).ttft; };
  const Measure tpot = [](const Record& r) { return LatenciesOf(r).tpot; };
  const Measure e2e = [](const Record& r) { return std::optional(LatenciesOf(r).e2e); };
  const Measure tokens = [](const Record& r) {
    return std::optional(static_cast<double>(OutputTokens(r)));
  };
  return {{"TTFT mean", "ms", 1e3, Statistic::kMean, ttft},
          {"TTFT p50", "ms", 1e3, Statistic::kMedian, ttft},
          {"TTFT p99", "ms", 1e3, Statistic::kP99, ttft},
          {"TPOT mean", "ms", 1e3, Statistic::kMean, tpot},
          {"TPOT p50", "ms", 1e3, Statistic::kMedian, tpot},
          {"E2E mean", "ms", 1e3, Statistic::kMean, e2e},
          {"E2E p50", "ms", 1e3, Statistic::kMedian, e2e},
          {"E2E p99", "ms", 1e3, Statistic::kP99, e2e},
          {"tokens/s of a stream", "tok/s", 1, Statistic::kMean, TokensPerSecond},
          {"output tokens", "tok", 1, Statistic::kMean, tokens}};
}

}  // namespace

Comparison Compare(const std::deque<Record>& records, uint64_t seed) {
  const std::vector<Pair> pairs = CompletedPairs(records);
  Comparison out{.num_pairs = pairs.size()};
  for (const RowSpec& spec : RowSpecs()) {
    std::vector<double> a;
    std::vector<double> b;
    for (const Pair& pair : pairs) {
      const auto value_a = spec.measure(*pair[0]);
      const auto value_b = spec.measure(*pair[1]);
      if (!value_a || !value_b) continue;
      a.push_back(*value_a);
      b.push_back(*value_b);
    }
    if (a.empty()) continue;
    out.rows.push_back({.name = spec.name,
                        .unit = spec.unit,
                        .scale = spec.scale,
                        .a = Compute(spec.statistic, a),
                        .b = Compute(spec.statistic, b),
                        .ratio = BootstrapRatio(a, b, spec.statistic, seed)});
  }
  return out;
}

}  // namespace weightless::loadtest
