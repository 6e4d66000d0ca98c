// A signal while nothing is sent: between runs, or while a server is asked for its metrics.
#include <gtest/gtest.h>

#include "loadtest/measurement.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

// Two runs of a sweep; the signal comes at the scrape of that number. Each run has two.
Session MeasureWithSignalAt(int scrape) {
  const MockServer server({.interrupting_scrape = scrape});
  Config config;
  config.url = server.url();
  config.num_prompts = 4;
  config.warmup = 0;
  config.dataset.output_tokens = {4, 4};
  config.sweep = SweepKind::kConcurrency;
  config.sweep_points = {1, 2};
  config.progress = "off";
  auto session = Measure(config);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : Session{};
}

TEST(InterruptedSessionTest, AfterARunKeepsItAndStartsNoOther) {
  for (const int scrape : {2, 3}) {
    const Session session = MeasureWithSignalAt(scrape);
    EXPECT_EQ(ExitCode(session), 130);
    ASSERT_EQ(session.reports.size(), 1u);
    EXPECT_EQ(session.reports[0].summary.completed, 4u);
  }
}

TEST(InterruptedSessionTest, BeforeTheFirstRunLeavesReportsThatAreEmpty) {
  const Session session = MeasureWithSignalAt(1);
  EXPECT_EQ(ExitCode(session), 130);
  EXPECT_TRUE(session.reports.empty());
  for (const auto report : {TableReport, JsonReport, CsvReport, HtmlReport}) {
    EXPECT_FALSE(report(session).empty());
  }
}

}  // namespace
}  // namespace weightless::loadtest
