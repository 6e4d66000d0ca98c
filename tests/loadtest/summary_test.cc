#include "loadtest/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/compare.h"

namespace weightless::loadtest {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

const SteadyTime kStart = SteadyTime() + std::chrono::seconds(100);

SteadyTime At(double seconds) { return kStart + FromSeconds(seconds); }

// Sent at 1 s, the role at 1.1 s, content at 1.2, 1.3 and 1.5 s, ended at 1.6 s.
Record MakeRecord(int64_t tokens) {
  Record record;
  record.outcome = Outcome::kCompleted;
  record.intended = At(0.75);
  record.sent = At(1);
  record.first_chunk = At(1.1);
  record.content = {{At(1.2)}, {At(1.3)}, {At(1.5)}};
  record.ended = At(1.6);
  record.usage = Usage{.prompt_tokens = 10, .completion_tokens = tokens, .cached_tokens = 4};
  return record;
}

RunResult ResultOf(std::deque<Record> records) {
  RunResult result;
  result.records = std::move(records);
  result.started = kStart;
  result.ended = At(2);
  return result;
}

auto Near(double value) { return DoubleNear(value, 1e-9); }

TEST(SummaryTest, DefinesEachLatency) {
  const RequestLatencies latencies = LatenciesOf(MakeRecord(3));
  EXPECT_THAT(*latencies.ttfc, Near(0.1));
  EXPECT_THAT(*latencies.ttft, Near(0.2));
  EXPECT_THAT(*latencies.tpot, Near(0.15));
  EXPECT_THAT(latencies.e2e, Near(0.6));
}

TEST(SummaryTest, TpotNeedsTwoTokens) {
  Record record = MakeRecord(1);
  record.content.resize(1);
  EXPECT_FALSE(LatenciesOf(record).tpot);
}

TEST(SummaryTest, GapsOfSingleTokensAreTheirLatencies) {
  const Samples samples = Collect({MakeRecord(4)}, 0);  // one more than chunks: the end of sequence
  EXPECT_THAT(samples.chunk_gap, ElementsAre(Near(0.1), Near(0.2)));
  EXPECT_THAT(samples.itl, ElementsAre(Near(0.1), Near(0.2)));
}

TEST(SummaryTest, GapsOfManyTokensAreSharedAmongThem) {
  const Samples samples = Collect({MakeRecord(9)}, 0);
  EXPECT_THAT(samples.chunk_gap, ElementsAre(Near(0.1), Near(0.2)));
  EXPECT_THAT(samples.itl, ElementsAre(Near(0.025), Near(0.05)));  // 8 tokens in 2 gaps
}

TEST(SummaryTest, TokenIdsSayWhatAChunkCarries) {
  Record record = MakeRecord(4);
  record.content[1].num_token_ids = 1;
  record.content[2].num_token_ids = 2;
  EXPECT_THAT(Collect({record}, 0).itl, ElementsAre(Near(0.1), Near(0.1), Near(0.1)));
}

TEST(SummaryTest, IntendedTimesSeeTheDelay) {
  const Samples samples = Collect({MakeRecord(3)}, 0);
  EXPECT_THAT(samples.delay, ElementsAre(Near(0.25)));
  EXPECT_THAT(samples.ttft_intended, ElementsAre(Near(0.45)));
  EXPECT_THAT(samples.e2e_intended, ElementsAre(Near(0.85)));
}

TEST(SummaryTest, CountsOutcomesTokensAndTheSlo) {
  Record failed = MakeRecord(3);
  failed.outcome = Outcome::kFailed;
  Record other_target = MakeRecord(3);
  other_target.target = 1;
  const RunResult result = ResultOf({MakeRecord(3), MakeRecord(5), failed, other_target});
  Slo slo;
  slo.tpot_seconds = 0.1;
  const Summary s = Summarize(result, 0, Collect(result.records, 0), slo);
  EXPECT_EQ(s.completed, 2u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_EQ(s.output_tokens, 8u);
  EXPECT_EQ(s.input_tokens, 20u);
  EXPECT_EQ(s.cached_tokens, 8u);
  EXPECT_EQ(s.good, 1u);  // 0.15 s and 0.075 s for a token
  EXPECT_EQ(s.max_concurrency, 3);
  EXPECT_STREQ(s.token_source, "usage");
  EXPECT_DOUBLE_EQ(s.PerSecond(s.completed), 1);
  EXPECT_DOUBLE_EQ(s.max_output_tokens_per_second, 11);  // the failed one's three too
}

TEST(SummaryTest, TimelineKeepsTotals) {
  const RunResult result = ResultOf({MakeRecord(3), MakeRecord(3)});
  const Timeline timeline = MakeTimeline(result, 0, 20);
  double requests = 0;
  double running = 0;
  for (size_t i = 0; i < 20; ++i) {
    requests += timeline.requests_per_second[i] * timeline.bin_seconds;
    running += timeline.running[i] * timeline.bin_seconds;
  }
  EXPECT_NEAR(requests, 2, 1e-9);
  EXPECT_NEAR(running, 1.2, 1e-9);
  EXPECT_NEAR(timeline.ttft[10], 0.2, 1e-9);
  EXPECT_LT(timeline.ttft[3], 0);
}

TEST(CompareTest, PairsByPromptAndLeavesOutWhatFailed) {
  std::deque<Record> records;
  for (size_t i = 0; i < 30; ++i) {
    Record a = MakeRecord(3);
    a.index = i;
    Record b = a;
    b.target = 1;
    b.ended = At(2.2);
    if (i == 7) b.outcome = Outcome::kFailed;
    records.push_back(a);
    records.push_back(b);
  }
  const Comparison comparison = Compare(records, 1);
  EXPECT_EQ(comparison.num_pairs, 29u);
  for (const ComparisonRow& row : comparison.rows) {
    const std::string_view name = row.name;
    if (name == "E2E mean") {
      EXPECT_NEAR(row.ratio.value, 2, 1e-9);
    } else if (name == "TTFT mean") {
      EXPECT_NEAR(row.ratio.value, 1, 1e-9);
    }
  }
}

}  // namespace
}  // namespace weightless::loadtest
