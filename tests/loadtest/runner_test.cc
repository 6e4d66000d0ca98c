#include "loadtest/runner.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/concat.h"
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

}  // namespace
}  // namespace weightless::loadtest
