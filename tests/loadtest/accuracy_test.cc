// The numbers against a server that notes when it really wrote.
#include <gtest/gtest.h>

#include <cmath>

#include "common/concat.h"
#include "loadtest/measurement.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

// One hiccup of a busy machine, in the generator, the server or the kernel between them, puts one
// attempt off by milliseconds. A systematic error puts every attempt off.
constexpr int kMaxAttempts = 8;

// What is off by more than 1 ms and more than 2 %.
class Mismatches {
 public:
  void Compare(const char* name, const Distribution& measured, std::vector<double> times) {
    const Distribution truth = Describe(std::move(times));
    if (measured.count != truth.count) {
      text_ += Concat(name, " count ", measured.count, " not ", truth.count, "; ");
    }
    CompareValue(name, "mean", measured.mean, truth.mean);
    CompareValue(name, "p50", measured.p50, truth.p50);
    CompareValue(name, "p90", measured.p90, truth.p90);
    CompareValue(name, "p99", measured.p99, truth.p99);
  }
  const std::string& text() const { return text_; }

 private:
  void CompareValue(const char* name, const char* statistic, double measured, double truth) {
    if (std::abs(measured - truth) <= std::max(0.001, 0.02 * truth)) return;
    text_ += Concat(name, " ", statistic, " ", measured, " s, by the server ", truth, " s; ");
  }

  std::string text_;
};

Config ConfigFor(const MockServer& server, int concurrency, uint64_t num_prompts) {
  Config config;
  config.url = server.url();
  config.concurrency = concurrency;
  config.num_prompts = num_prompts;
  config.warmup = 0;
  // Not all at once: the mock's one thread would take the requests up one after the other, and that
  // wait is latency for the client but not by the server's clock.
  config.ramp_up_seconds = 0.002 * concurrency;
  config.dataset.input_tokens = {16, 16};
  config.dataset.output_tokens = {16, 16};
  config.progress = "off";
  return config;
}

void CheckAccuracy(int concurrency, MockOptions options, uint64_t num_prompts) {
  for (int attempt = 1;; ++attempt) {
    MockServer server(options);
    const auto session = Measure(ConfigFor(server, concurrency, num_prompts));
    ASSERT_TRUE(session.ok()) << session.status();
    const Report& report = session->reports.front();
    const Summary& s = report.summary;
    const MockTimes times = server.Stop();
    ASSERT_EQ(s.completed, num_prompts);
    EXPECT_GE(s.ttft.min, options.ttft_seconds);
    EXPECT_LE(s.PerSecond(s.completed),
              concurrency / (options.ttft_seconds + 15 * options.itl_seconds));
    Mismatches mismatches;
    mismatches.Compare("TTFT", s.ttft, times.ttft);
    mismatches.Compare("TPOT", s.tpot, times.tpot);
    mismatches.Compare("E2E", s.e2e, times.e2e);
    mismatches.Compare("chunk gap", s.chunk_gap, times.gaps);
    if (!mismatches.text().empty() && attempt < kMaxAttempts) continue;
    EXPECT_EQ(mismatches.text(), "")
        << "attempt " << attempt << ", lag " << Describe(report.result->load.lags).p99;
    return;
  }
}

TEST(AccuracyTest, OneStream) {
  CheckAccuracy(1, {.ttft_seconds = 0.01, .itl_seconds = 0.002}, 40);
}

TEST(AccuracyTest, ThirtyTwoStreams) {
  CheckAccuracy(32, {.ttft_seconds = 0.03, .itl_seconds = 0.01}, 160);
}

TEST(AccuracyTest, FiveHundredAndTwelveStreams) {
  CheckAccuracy(512, {.ttft_seconds = 0.2, .itl_seconds = 0.1}, 1024);
}

// 1,000 streams of a chunk each 40 ms: 25,000 chunks a second.
TEST(AccuracyTest, ThousandStreamsDoNotBusyTheGenerator) {
  Config config;
  config.concurrency = 1000;
  config.num_prompts = 2000;
  config.warmup = 1000;
  config.dataset.output_tokens = {50, 50};
  config.progress = "off";
  config.audit.loop_lag_seconds = 0.03;  // the mock server needs the other core
  absl::StatusOr<Session> session;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const MockServer server({.ttft_seconds = 0.1, .itl_seconds = 0.04});
    config.url = server.url();
    session = Measure(config);
    ASSERT_TRUE(session.ok()) << session.status();
    if (ExitCode(*session) == 0) break;
  }
  const Report& report = session->reports.front();
  EXPECT_EQ(ExitCode(*session), 0) << TableReport(*session);
  EXPECT_EQ(report.summary.completed, 2000u);
  EXPECT_EQ(report.summary.max_concurrency, 1000);
  EXPECT_LT(report.result->load.cpu_share(), 0.9);
  RecordProperty("table", TableReport(*session));
}

}  // namespace
}  // namespace weightless::loadtest
