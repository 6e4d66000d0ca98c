// The audit against a server with planted faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/measurement.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

Config ConfigFor(const MockServer& server) {
  Config config;
  config.url = server.url();
  config.concurrency = 4;
  config.num_prompts = 20;
  config.warmup = 0;
  config.dataset.input_tokens = {8, 8};
  config.dataset.output_tokens = {6, 6};
  config.progress = "off";
  config.audit.loop_lag_seconds = 10;  // not what these tests are about
  config.audit.cpu_share = 2;
  return config;
}

AuditCheck CheckNamed(const Session& session, std::string_view name) {
  for (const AuditCheck& check : session.reports.front().audit) {
    if (name == check.name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  return {.name = ""};
}

// A hiccup of the machine can make a request late that is not meant to be: then once more.
absl::StatusOr<Session> MeasureUntil(const MockOptions& options, const char* check,
                                     std::string_view detail) {
  for (int attempt = 1;; ++attempt) {
    const MockServer server(options);
    auto session = Measure(ConfigFor(server));
    if (!session.ok() || attempt == 5) return session;
    if (CheckNamed(*session, check).detail.find(detail) != std::string::npos) return session;
  }
}

// Runs against a server with `fault` in every fifth request and expects the named check to fail
// with `detail`.
void ExpectCaught(Fault fault, const char* name, const char* detail) {
  const auto session =
      MeasureUntil({.ttft_seconds = 0.002, .fault = fault, .fault_every = 5}, name, detail);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ExitCode(*session), 3);
  const AuditCheck check = CheckNamed(*session, name);
  EXPECT_EQ(check.verdict, Verdict::kFailed) << check.detail;
  EXPECT_THAT(check.detail, HasSubstr(detail));
}

TEST(MockAuditTest, FaultlessServerPasses) {
  const auto session = MeasureUntil({.ttft_seconds = 0.002, .role_lead_seconds = 0.001},
                                    "server TTFT", "none later than");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ExitCode(*session), 0) << TableReport(*session);
  EXPECT_EQ(session->reports.front().summary.completed, 20u);
  EXPECT_EQ(session->reports.front().summary.output_tokens, 120u);
  for (const AuditCheck& check : session->reports.front().audit) {
    EXPECT_EQ(check.verdict, Verdict::kPassed) << check.name << ": " << check.detail;
  }
}

TEST(MockAuditTest, CatchesWrongUsage) {
  ExpectCaught(Fault::kWrongUsage, "usage", "4 problems; request 0: usage of 7 tokens");
}

TEST(MockAuditTest, CatchesMissingUsage) {
  ExpectCaught(Fault::kMissingUsage, "usage", "no usage");
}

TEST(MockAuditTest, AServerWithoutAnyUsageIsNotAccused) {
  const MockServer server({.fault = Fault::kMissingUsage});
  const auto session = Measure(ConfigFor(server));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(CheckNamed(*session, "usage").verdict, Verdict::kSkipped);
  EXPECT_EQ(session->reports.front().summary.output_tokens, 120u);  // the chunks
}

TEST(MockAuditTest, CatchesMissingDone) {
  ExpectCaught(Fault::kMissingDone, "streams", "ended without [DONE]");
}

TEST(MockAuditTest, CatchesMissingFinishReason) {
  ExpectCaught(Fault::kMissingFinish, "streams", "ended without a finish_reason");
}

// Such a stream is cut short for all that its client can tell, so it fails, too.
TEST(MockAuditTest, CatchesStreamsThatEndWithNeither) {
  for (const int fault_every : {5, 1}) {
    const MockServer server({.fault = Fault::kMissingEnd, .fault_every = fault_every});
    const auto session = Measure(ConfigFor(server));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(session->reports.front().summary.failed, 20u / static_cast<unsigned>(fault_every));
    EXPECT_THAT(CheckNamed(*session, "streams").detail, HasSubstr("neither [DONE] nor a finish"));
    EXPECT_EQ(ExitCode(*session), 3);
  }
}

TEST(MockAuditTest, CatchesContentAfterTheEnd) {
  ExpectCaught(Fault::kContentAfterFinish, "streams", "content after its finish_reason");
}

TEST(MockAuditTest, CatchesDuplicateChunk) {
  ExpectCaught(Fault::kDuplicateChunk, "usage", "but 7 chunks with content");
}

TEST(MockAuditTest, CatchesFirstByteLaterThanTheServerSays) {
  ExpectCaught(Fault::kLateFirstByte, "server TTFT", "4 requests took over");
}

TEST(MockAuditTest, CatchesWrongMetric) {
  ExpectCaught(Fault::kWrongMetric, "server counts", "output tokens 120 here and 116 there");
}

TEST(MockAuditTest, CatchesUsageThatTokenIdsContradict) {
  const MockServer server(
      {.tokens_per_chunk = 3, .sends_token_ids = true, .fault = Fault::kWrongUsage});
  Config config = ConfigFor(server);
  config.dataset.output_tokens = {7, 7};
  const auto session = Measure(config);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(CheckNamed(*session, "usage").detail, HasSubstr("8 tokens, but 7 token ids"));
}

TEST(MockAuditTest, CountsBrokenStreamsErrorsAndRefusalsAsFailed) {
  for (const Fault fault : {Fault::kBrokenStream, Fault::kErrorEvent, Fault::kRefusal}) {
    const MockServer server({.fault = fault, .fault_every = 5});
    const auto session = Measure(ConfigFor(server));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(session->reports.front().summary.failed, 4u);
    EXPECT_EQ(session->reports.front().summary.completed, 16u);
    EXPECT_EQ(ExitCode(*session), 0) << TableReport(*session);
  }
}

TEST(MockAuditTest, SaysWhyServerCountsWereNotChecked) {
  const MockServer server({.max_scrapes = 0});
  const auto session = Measure(ConfigFor(server));
  ASSERT_TRUE(session.ok()) << session.status();
  const AuditCheck check = CheckNamed(*session, "server counts");
  EXPECT_EQ(check.verdict, Verdict::kSkipped);
  EXPECT_THAT(check.detail, HasSubstr("HTTP 404"));
  EXPECT_EQ(ExitCode(*session), 0);
}

TEST(MockAuditTest, FailsMetricsThatWereThereBeforeTheRunOnly) {
  const MockServer server({.max_scrapes = 1});
  const auto session = Measure(ConfigFor(server));
  ASSERT_TRUE(session.ok()) << session.status();
  for (const char* name : {"server counts", "server TTFT"}) {
    const AuditCheck check = CheckNamed(*session, name);
    EXPECT_EQ(check.verdict, Verdict::kFailed);
    EXPECT_THAT(check.detail, HasSubstr("before the run, not after it: no metrics: /metrics"));
  }
  EXPECT_EQ(ExitCode(*session), 3);
}

TEST(MockAuditTest, FailsAGeneratorThatIsLate) {
  const MockServer server({.ttft_seconds = 0.02});
  Config config = ConfigFor(server);
  config.audit.loop_lag_seconds = 1e-9;
  const auto session = Measure(config);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(CheckNamed(*session, "generator").verdict, Verdict::kFailed);
  EXPECT_EQ(ExitCode(*session), 3);
}

}  // namespace
}  // namespace weightless::loadtest
