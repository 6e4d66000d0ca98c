#include "loadtest/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>
#include <utility>

#include "common/concat.h"
#include "loadtest/audit.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

// Two streams with one request each: the first has one token, the second four. The thread sleeps at
// the end of the first over the second's end and a progress tick, so that both come to the event
// loop at once, the tick behind the end of the run.
TEST(RunnerTest, EndsThoughATickIsDueWithTheLastAnswer) {
  const MockServer server({.itl_seconds = 0.01});
  Runner runner;
  ASSERT_TRUE(runner.AddTarget(server.url(), {}).ok());
  RunPlan plan;
  plan.max_in_flight = 2;
  uint64_t num_asked = 0;
  plan.next_request = [&](int) -> std::optional<PlannedRequest> {
    if (num_asked < 2) return PlannedRequest{.prompt_idx = num_asked++};
    if (num_asked++ == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return std::nullopt;
  };
  plan.format_request = [&](const PlannedRequest& request, Record&) {
    const std::string body = Concat("{\"max_tokens\":", request.prompt_idx == 0 ? 1 : 4, "}");
    return FormatRequest(server.url(), "POST", "/v1/completions", "", body);
  };
  plan.on_progress = [](const LiveStats&) {};
  const RunResult result = runner.Run(plan);
  ASSERT_EQ(result.records.size(), 2u);
  for (const Record& record : result.records) {
    EXPECT_EQ(record.outcome, Outcome::kCompleted) << record.error;
  }
}

// The process may open no file when the request wants its connection.
TEST(RunnerTest, ConnectionWithoutAFileIsTheFaultOfTheGenerator) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer opens a pipe to see whether an object may be read";
#endif
  const MockServer server({});
  Runner runner;
  ASSERT_TRUE(runner.AddTarget(server.url(), {}).ok());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  RunPlan plan;
  plan.next_request = [&limit, is_asked = false](int) mutable -> std::optional<PlannedRequest> {
    if (std::exchange(is_asked, true)) return std::nullopt;
    const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    return PlannedRequest{};
  };
  plan.format_request = [](const PlannedRequest&, Record&) { return "GET / HTTP/1.1\r\n\r\n"; };
  const RunResult result = runner.Run(plan);
  setrlimit(RLIMIT_NOFILE, &limit);
  ASSERT_EQ(result.records.size(), 1u);
  EXPECT_THAT(result.records[0].error, ::testing::HasSubstr("Too many open files"));
  const AuditCheck check = Audit({.result = result,
                                  .summary = {},
                                  .limits = {.loop_lag_seconds = 10, .cpu_share = 2},
                                  .server = {},
                                  .no_server_reason = ""})
                               .front();
  EXPECT_EQ(check.verdict, Verdict::kFailed);
  EXPECT_THAT(check.detail, ::testing::HasSubstr("1 connection found no file or port"));
}

}  // namespace
}  // namespace weightless::loadtest
