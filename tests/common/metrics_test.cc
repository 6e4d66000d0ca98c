#include "common/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "common/worker_facts.h"

namespace weightless {
namespace {

using testing::HasSubstr;
using testing::Not;

WorkerFacts Facts() {
  WorkerFacts facts;
  facts.model = "tiny";
  facts.mode = "dense";
  facts.dtype = "bfloat16";
  facts.device = "cpu";
  facts.block_size = 64;
  facts.num_full_blocks = 100;
  facts.max_context = 1024;
  facts.memory_total_bytes = 1000;
  facts.memory_allocated_bytes = 300;
  facts.memory = {{"weights", 100}, {"kv_full", 200}};
  return facts;
}

// Sample lines of a text exposition: name and labels -> value.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

TEST(MetricsTest, VariantsAreNamedByWhatDistinguishesThem) {
  WorkerFacts facts = Facts();
  EXPECT_EQ(VariantName(facts), "tiny dense bfloat16 cpu");
  facts.mode = "on-the-fly";
  facts.rank = 64;
  facts.num_bands = 4;
  facts.w0_encoding = "int4";
  EXPECT_EQ(VariantName(facts), "tiny on-the-fly r64 g4 int4 bfloat16 cpu");
}

TEST(MetricsTest, AWorkersFactsAreShownWhileItIsReady) {
  RouterMetrics metrics;
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("weightless_worker_info")));
  metrics.Describe("a:1", Facts());
  auto samples = Samples(metrics.Exposition());
  EXPECT_EQ(samples.at(R"(weightless_memory_bytes{class="kv_full",worker="a:1"})"), 200);
  EXPECT_EQ(samples.at(R"(weightless_memory_allocated_bytes{worker="a:1"})"), 300);
  EXPECT_EQ(samples.at(R"(weightless_memory_total_bytes{worker="a:1"})"), 1000);

  WorkerFacts changed = Facts();
  changed.memory = {{"weights", 7}};
  metrics.Describe("a:1", changed);
  samples = Samples(metrics.Exposition());
  EXPECT_EQ(samples.at(R"(weightless_memory_bytes{class="weights",worker="a:1"})"), 7);
  EXPECT_EQ(samples.count(R"(weightless_memory_bytes{class="kv_full",worker="a:1"})"), 0u);

  metrics.Forget("a:1");
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("weightless_memory_bytes{")));
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("weightless_worker_info{")));
  EXPECT_THAT(metrics.Exposition(), HasSubstr("weightless_variant_info{"));
}

TEST(MetricsTest, AReplicaThatIsGoneForGoodLeavesNothing) {
  RouterMetrics metrics({.served_model_name = {}, .keep_counts = absl::ZeroDuration()});
  metrics.ForReplica("a:1").up.Set(1);
  metrics.ForReplica("b:1").up.Set(1);
  metrics.Describe("a:1", Facts());
  metrics.RemoveReplica("a:1");
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("a:1")));
  EXPECT_THAT(metrics.Exposition(), HasSubstr(R"(weightless_worker_up{worker="b:1"} 1)"));
  metrics.ForReplica("a:1").steps.Add();
  EXPECT_EQ(Samples(metrics.Exposition()).at(R"(weightless_steps_total{worker="a:1"})"), 1);
}

TEST(MetricsTest, WhatAReplicaCountedOutlivesIt) {
  RouterMetrics metrics;
  const std::string up = R"(weightless_worker_up{worker="a:1"})";
  const std::string losses = R"(weightless_worker_losses_total{worker="a:1"})";
  ReplicaMetrics replica = metrics.ForReplica("a:1");
  replica.up.Set(1);
  replica.losses.Add();
  metrics.RemoveReplica("a:1");
  auto samples = Samples(metrics.Exposition());
  EXPECT_EQ(samples.count(up), 0u);
  EXPECT_EQ(samples.at(losses), 1);
  metrics.ForReplica("a:1").losses.Add();
  samples = Samples(metrics.Exposition());
  EXPECT_EQ(samples.at(up), 0);
  EXPECT_EQ(samples.at(losses), 2);
}

TEST(MetricsTest, VllmNamesRepeatOurs) {
  RouterMetrics metrics({.vllm_names = true, .served_model_name = "gem\"ma"});
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("vllm:")));  // the model is not known
  metrics.Describe("a:1", Facts());
  metrics.Describe("b:1", Facts());
  metrics.requests_stop.Add();
  metrics.requests_tool_calls.Add();
  metrics.running_sequences.Set(3);
  metrics.itl_seconds.Observe(0.02);
  metrics.vllm.ttft_seconds.Observe(1.5);
  const std::string text = metrics.Exposition();
  const auto samples = Samples(text);
  const std::string labels = R"(engine="0",model_name="gem\"ma")";
  const auto value = [&](const std::string& name, const std::string& more = "") {
    return samples.at("vllm:" + name + "{" + labels + more + "}");
  };
  EXPECT_EQ(value("request_success_total", R"(,finished_reason="stop")"), 2);
  EXPECT_EQ(value("num_requests_running"), 3);
  EXPECT_EQ(value("inter_token_latency_seconds_bucket", R"(,le="0.01")"), 0);
  EXPECT_EQ(value("inter_token_latency_seconds_bucket", R"(,le="0.025")"), 1);
  EXPECT_EQ(value("time_per_output_token_seconds_count"), 1);
  EXPECT_EQ(value("time_to_first_token_seconds_bucket", R"(,le="1.0")"), 0);
  EXPECT_EQ(value("time_to_first_token_seconds_bucket", R"(,le="2.5")"), 1);
  EXPECT_EQ(value("time_to_first_token_seconds_sum"), 1.5);
  EXPECT_THAT(text, HasSubstr(R"(num_gpu_blocks="200")"));
  // Boundaries of token counts end at the longest context, as vLLM's do.
  EXPECT_THAT(text,
              HasSubstr(R"(vllm:request_prompt_tokens_bucket{)" + labels + R"(,le="1000.0"} 0.0)"));
  EXPECT_THAT(text, Not(HasSubstr(R"(le="2000.0"})")));
}

TEST(MetricsTest, VllmNamesCanBeSwitchedOff) {
  RouterMetrics metrics({.vllm_names = false, .served_model_name = ""});
  metrics.Describe("a:1", Facts());
  metrics.vllm.choices.Observe(1);
  metrics.itl_seconds.Observe(0.02);
  EXPECT_THAT(metrics.Exposition(), Not(HasSubstr("vllm:")));
  EXPECT_EQ(Samples(metrics.Exposition()).at("weightless_itl_seconds_count"), 1);
}

TEST(MetricsTest, AProcessReportsItself) {
  const auto samples = Samples(RouterMetrics().Exposition());
  EXPECT_GT(samples.at("process_resident_memory_bytes"), 1e5);
  EXPECT_GT(samples.at("process_open_fds"), 2);
  EXPECT_GT(samples.at("process_start_time_seconds"), 1.7e9);
}

}  // namespace
}  // namespace weightless
