#include "router/key_limiter.h"

#include <gtest/gtest.h>

#include "router/api_error.h"

namespace weightless::router {
namespace {

struct Limits {
  explicit Limits(KeyLimits limits) : limiter(limits, clock, metrics) {
    clock.Advance(absl::Seconds(1700000000));
  }

  // "" when a request of the key passes, else what it is told, "N: MESSAGE" with Retry-After.
  std::string Ask(const std::string& key, int64_t num_tokens = 0) {
    auto lease = limiter.Acquire(key);
    if (lease.ok()) {
      lease->Charge(num_tokens);
      return "";
    }
    const HttpResponse response = ErrorResponse(lease.status());
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.headers.at(0).first, "Retry-After");
    return response.headers.at(0).second + ": " + std::string(lease.status().message());
  }

  ManualClock clock;
  RouterMetrics metrics;
  KeyLimiter limiter;
};

TEST(KeyLimiterTest, WithoutLimitsEverythingPasses) {
  Limits limits({});
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limits.Ask("a", 1 << 20), "");
}

TEST(KeyLimiterTest, CountsRequestsUnderWay) {
  Limits limits({.requests_under_way = 1});
  auto lease = limits.limiter.Acquire("a");
  EXPECT_EQ(limits.Ask("a"), "1: the key \"a\" has 1 requests under way; the limit is 1");
  EXPECT_EQ(limits.Ask("b"), "");
  lease->Release();
  EXPECT_EQ(limits.Ask("a"), "");
  EXPECT_EQ(limits.metrics.refused_requests_under_way.value(), 1);
}

TEST(KeyLimiterTest, AMinutesRequestsMayComeAtOnceAndThenSteadily) {
  Limits limits({.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limits.Ask("a"), "");
  const std::string refusal =
      "10: the key \"a\" has used up its 6 requests per minute; the next request passes in 10 s";
  EXPECT_EQ(limits.Ask("a"), refusal);
  EXPECT_EQ(limits.Ask("b"), "");
  limits.clock.Advance(absl::Seconds(9) + absl::Milliseconds(500));
  EXPECT_EQ(limits.Ask("a").substr(0, 3), "1: ");
  limits.clock.Advance(absl::Milliseconds(500));
  EXPECT_EQ(limits.Ask("a"), "");
  EXPECT_EQ(limits.Ask("a"), refusal);
  limits.clock.Advance(absl::Hours(1));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limits.Ask("a"), "");
  EXPECT_EQ(limits.Ask("a"), refusal);
  EXPECT_EQ(limits.metrics.refused_requests_per_minute.value(), 4);
}

TEST(KeyLimiterTest, TokensMayGoBeyondAndTheDebtDelaysTheNextRequest) {
  Limits limits({.tokens_per_minute = 60});
  EXPECT_EQ(limits.Ask("a", 59), "");
  EXPECT_EQ(limits.Ask("a", 100), "");  // one is left, so it goes
  EXPECT_EQ(
      limits.Ask("a"),
      "99: the key \"a\" has used up its 60 tokens per minute; the next request passes in 99 s");
  EXPECT_EQ(limits.Ask("b"), "");
  limits.clock.Advance(absl::Seconds(98));
  EXPECT_EQ(limits.Ask("a").substr(0, 3), "1: ");
  limits.clock.Advance(absl::Seconds(1));
  EXPECT_EQ(limits.Ask("a", 1), "");
  EXPECT_NE(limits.Ask("a"), "");
  EXPECT_EQ(limits.metrics.refused_tokens_per_minute.value(), 3);
}

TEST(KeyLimiterTest, WaitsForAsLongAsItSaysAtAnyRate) {
  for (const int64_t limit : {1, 7, 59, 61, 1000, 999983, 1000000000}) {
    Limits limits({.requests_per_minute = limit, .tokens_per_minute = limit});
    EXPECT_EQ(limits.Ask("a", 3 * limit + 1), "");
    const std::string refusal = limits.Ask("a");
    ASSERT_NE(refusal, "") << limit;
    limits.clock.Advance(absl::Seconds(std::stoi(refusal)));
    EXPECT_EQ(limits.Ask("a"), "") << limit;
  }
}

TEST(KeyLimiterTest, WithoutKeysAllCallersShareTheLimit) {
  Limits limits({.requests_per_minute = 1});
  EXPECT_EQ(limits.Ask(""), "");
  EXPECT_EQ(limits.Ask(""),
            "60: the server without API keys has used up its 1 requests per minute; the next "
            "request passes in 60 s");
}

}  // namespace
}  // namespace weightless::router
