#include "loadtest/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

// The check of counts, for a client that saw 10 requests of 100 prompt tokens, 20 of them cached.
AuditCheck CheckCounts(const ServerCounts& server) {
  const RunResult result;
  Summary summary;
  summary.completed = 10;
  summary.input_tokens = 1000;
  summary.cached_tokens = 200;
  summary.output_tokens = 320;
  const AuditInput input{.result = result,
                         .target = 0,
                         .summary = summary,
                         .limits = {},
                         .server = server,
                         .no_server_reason = ""};
  for (AuditCheck& check : Audit(input)) {
    if (std::string_view(check.name) == "server counts") return std::move(check);
  }
  return {.name = "missing"};
}

TEST(AuditTest, CachedPromptTokensAreCountedAsTheServerDoes) {
  ServerCounts server;
  server.prompt_tokens = 800;
  server.has_cached_prompt_tokens = false;
  EXPECT_EQ(CheckCounts(server).verdict, Verdict::kPassed);
  server.has_cached_prompt_tokens = true;
  EXPECT_EQ(CheckCounts(server).verdict, Verdict::kFailed);
  server.prompt_tokens = 1000;
  EXPECT_EQ(CheckCounts(server).verdict, Verdict::kPassed);
}

TEST(AuditTest, CountersThatFellMeanARestart) {
  ServerCounts server;
  server.requests = -4;
  const AuditCheck check = CheckCounts(server);
  EXPECT_EQ(check.verdict, Verdict::kFailed);
  EXPECT_THAT(check.detail, HasSubstr("the server restarted"));
}

}  // namespace
}  // namespace weightless::loadtest
