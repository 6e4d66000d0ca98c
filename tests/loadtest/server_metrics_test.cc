#include "loadtest/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weightless::loadtest {
namespace {

constexpr std::string_view kOurs = R"(# HELP weightless_requests_total Requests.
# TYPE weightless_requests_total counter
weightless_requests_total{outcome="stop"} 3
weightless_requests_total{outcome="length"} 4
weightless_requests_total{outcome="error"} 5
weightless_requests_total{outcome="aborted"} 6
weightless_prompt_tokens_total 100
weightless_generated_tokens_total 1e3
weightless_ttft_seconds_bucket{le="0.1"} 5
weightless_ttft_seconds_bucket{le="+Inf"} 7
vllm:request_success_total{finished_reason="stop",model_name="m"} 99
)";

ServerCounts Counts(std::string_view text) { return CountsOf(*ParseExposition(text)); }

TEST(ServerMetricsTest, SumsAnswersAndLeavesOutTheRest) {
  const ServerCounts counts = Counts(kOurs);
  EXPECT_EQ(counts.family, "weightless");
  EXPECT_EQ(counts.requests, 7);
  EXPECT_EQ(counts.prompt_tokens, 100);
  EXPECT_EQ(counts.output_tokens, 1000);
  EXPECT_EQ(counts.ttft_buckets.at(0.1), 5);
  EXPECT_EQ(counts.ttft_buckets.at(std::numeric_limits<double>::infinity()), 7);
}

TEST(ServerMetricsTest, KnowsVllmAndLlamaCpp) {
  const ServerCounts vllm = Counts(
      "vllm:request_success_total{finished_reason=\"length\",model_name=\"a b\\\"c\"} 2 "
      "1700000000\n"
      "vllm:request_success_total{finished_reason=\"abort\"} 1\n"
      "vllm:generation_tokens_total 8\n");
  EXPECT_EQ(vllm.family, "vllm");
  EXPECT_EQ(vllm.requests, 2);
  EXPECT_FALSE(vllm.prompt_tokens);
  EXPECT_TRUE(vllm.has_cached_prompt_tokens);
  const ServerCounts llama = Counts("llamacpp:tokens_predicted_total 12\n");
  EXPECT_EQ(llama.family, "llamacpp");
  EXPECT_FALSE(llama.requests);
  EXPECT_FALSE(llama.has_cached_prompt_tokens);
  EXPECT_EQ(Counts("other 1\n").family, "");
}

TEST(ServerMetricsTest, SubtractsMemberByMember) {
  ServerCounts later = Counts(kOurs);
  later.requests = 10;
  later.ttft_buckets[0.1] = 6;
  const ServerCounts difference = Difference(later, Counts(kOurs));
  EXPECT_EQ(difference.requests, 3);
  EXPECT_EQ(difference.output_tokens, 0);
  EXPECT_EQ(difference.ttft_buckets.at(0.1), 1);
}

TEST(ServerMetricsTest, NamesALineThatIsNoSample) {
  for (const char* text : {"<html>\n", "name\n", "name{a=\"b\" 1\n", "name{a} 1\n", "name x\n"}) {
    EXPECT_THAT(std::string(ParseExposition(text).status().message()),
                ::testing::HasSubstr("line 1: not a sample"))
        << text;
  }
}

}  // namespace
}  // namespace weightless::loadtest
