// What a step reports: logprobs, ends, and which sequences are absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

double LogProb(const std::vector<float>& logits, int32_t token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return logits[static_cast<size_t>(token)] - max - std::log(sum);
}

uint32_t Rank(const std::vector<float>& logits, int32_t token) {
  const float own = logits[static_cast<size_t>(token)];
  return 1 + static_cast<uint32_t>(std::count_if(logits.begin(), logits.end(),
                                                 [own](float logit) { return logit > own; }));
}

TEST(EngineResultsTest, PromptLogprobsCoverTheChunkRowByRow) {
  // More rows than are computed at once.
  const std::vector<int32_t> prompt = ArbitraryPrompt(100, 1);
  const auto engine = MakeTestEngine();
  std::vector<std::vector<float>> logits(prompt.size());
  engine->set_logits_observer([&](int, int position, std::span<const float> row) {
    logits[static_cast<size_t>(position)].assign(row.begin(), row.end());
    return absl::OkStatus();
  });
  std::vector<proto::Logprobs> reported;
  proto::StepPlan plan;
  AddAdmit(plan, 3, prompt).set_prompt_logprobs(2);
  AddBlocks(plan, 3, 0, {0, 1}, {0, 1});
  uint64_t step = 0;
  for (const int chunk : {70, 29, 1}) {
    AddPrefill(plan, 3, chunk);
    plan.set_step(++step);
    const auto result = engine->Step(plan);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->slots_size(), 1);
    EXPECT_EQ(result->num_tokens(), static_cast<uint32_t>(chunk));
    EXPECT_EQ(result->slots(0).prompt_logprobs_size(), chunk == 1 ? 0 : chunk);
    EXPECT_EQ(result->slots(0).has_token(), chunk == 1);
    for (const auto& entry : result->slots(0).prompt_logprobs()) reported.push_back(entry);
    plan.Clear();
  }
  ASSERT_EQ(reported.size(), prompt.size() - 1);
  for (size_t i = 0; i < reported.size(); ++i) {
    EXPECT_EQ(reported[i].token(), prompt[i + 1]);
    EXPECT_NEAR(reported[i].logprob(), LogProb(logits[i], prompt[i + 1]), 1e-4);
    EXPECT_EQ(reported[i].rank(), Rank(logits[i], prompt[i + 1]));
    ASSERT_EQ(reported[i].top_tokens_size(), 2);
    EXPECT_EQ(Rank(logits[i], reported[i].top_tokens(0)), 1u);
    EXPECT_NEAR(reported[i].top_logprobs(1), LogProb(logits[i], reported[i].top_tokens(1)), 1e-4);
  }
}

TEST(EngineResultsTest, LogprobsAreOfTheRawDistribution) {
  const auto engine = MakeTestEngine();
  Recorder recorder(*engine);
  proto::StepPlan plan;
  proto::Sampling& sampling = *AddAdmit(plan, 0, ArbitraryPrompt(5, 2)).mutable_sampling();
  sampling.set_logprobs(3);
  sampling.set_temperature(2);
  sampling.add_logit_bias()->set_token(77);
  sampling.mutable_logit_bias(0)->set_bias(100);
  AddBlocks(plan, 0, 0, {0}, {0});
  AddPrefill(plan, 0, 5);
  const proto::StepResult result = recorder.Run(plan);
  ASSERT_EQ(result.slots_size(), 1);
  const proto::Logprobs& logprobs = result.slots(0).logprobs();
  EXPECT_EQ(result.slots(0).token(), 77);
  EXPECT_EQ(logprobs.token(), 77);
  const std::vector<float>& raw = recorder.slot(0).logits[0];
  EXPECT_NEAR(logprobs.logprob(), LogProb(raw, 77), 1e-4);
  EXPECT_EQ(logprobs.rank(), Rank(raw, 77));
  EXPECT_EQ(logprobs.top_tokens_size(), 3);
}

TEST(EngineResultsTest, StopTokenEndsTheSequenceAndLaterPlansSkipIt) {
  const auto engine = MakeTestEngine();
  Recorder recorder(*engine);
  proto::StepPlan plan;
  proto::Sampling& sampling = *AddAdmit(plan, 0, ArbitraryPrompt(5, 2)).mutable_sampling();
  sampling.add_logit_bias()->set_token(77);
  sampling.mutable_logit_bias(0)->set_bias(100);
  sampling.add_stop_token_ids(77);
  sampling.set_min_tokens(2);
  AddBlocks(plan, 0, 0, {0}, {0});
  AddPrefill(plan, 0, 5);
  recorder.Run(plan);
  plan.Clear();
  SetDecode(plan, {0});
  recorder.Run(plan);
  EXPECT_FALSE(recorder.ended(0));
  plan.Clear();
  recorder.Run(plan);
  EXPECT_TRUE(recorder.ended(0));
  ASSERT_EQ(recorder.slot(0).tokens.size(), 3u);
  EXPECT_NE(recorder.slot(0).tokens[1], 77);
  EXPECT_EQ(recorder.slot(0).tokens[2], 77);

  const proto::StepResult after = recorder.Run(plan);
  EXPECT_EQ(after.slots_size(), 0);
  EXPECT_EQ(after.num_tokens(), 0u);
}

TEST(EngineResultsTest, FullContextEndsTheSequence) {
  const auto engine = MakeTestEngine(
      {.engine = {
           .max_length = 10, .num_slots = 2, .num_full_blocks = 2, .num_sliding_blocks = 2}});
  EXPECT_EQ(engine->description().geometry().max_context(), 10u);
  const Generated out = GenerateAlone(*engine, ArbitraryPrompt(7, 2), 64);
  EXPECT_EQ(out.tokens.size(), 3u);
  EXPECT_EQ(GenerateAlone(*engine, ArbitraryPrompt(10, 2), 64).tokens.size(), 1u);
}

TEST(EngineResultsTest, DecodeSetStandsUntilAPlanNamesAnother) {
  const auto engine = MakeTestEngine();
  Recorder recorder(*engine);
  proto::StepPlan plan;
  for (const int slot : {0, 1}) {
    AddAdmit(plan, slot, ArbitraryPrompt(4, 7));
    AddBlocks(plan, slot, 0, Blocks(static_cast<uint32_t>(slot), 1),
              Blocks(static_cast<uint32_t>(slot), 1));
    AddPrefill(plan, slot, 4);
  }
  EXPECT_EQ(recorder.Run(plan).slots_size(), 2);
  plan.Clear();
  EXPECT_EQ(recorder.Run(plan).slots_size(), 0);
  SetDecode(plan, {0, 1});
  EXPECT_EQ(recorder.Run(plan).slots_size(), 2);
  plan.Clear();
  EXPECT_EQ(recorder.Run(plan).slots_size(), 2);
  plan.add_release(0);
  EXPECT_EQ(recorder.Run(plan).slots_size(), 1);
  plan.Clear();
  SetDecode(plan, {});
  EXPECT_EQ(recorder.Run(plan).slots_size(), 0);
}

TEST(EngineResultsTest, DescriptionAccountsForModelAndMemory) {
  const auto engine = MakeTestEngine();
  const proto::Description& about = engine->description();
  EXPECT_EQ(about.protocol_version(), 1u);
  EXPECT_EQ(about.model().name(), "tiny-gemma3");
  EXPECT_EQ(about.model().architecture(), "Gemma3ForCausalLM");
  EXPECT_EQ(about.model().vocab_size(), 4096u);
  EXPECT_EQ(about.model().num_layers(), 12u);
  EXPECT_EQ(about.model().weight_identity().size(), 64u);
  EXPECT_GT(about.model().num_parameters(), 7'000'000u);
  EXPECT_EQ(about.geometry().block_size(), 64u);
  EXPECT_EQ(about.geometry().sliding_window(), 64u);
  EXPECT_EQ(about.geometry().num_full_blocks(), 64u);
  std::vector<std::string> kinds;
  for (const proto::MemoryUse& use : about.memory()) {
    kinds.push_back(use.kind());
    EXPECT_GT(use.size_bytes(), 0u) << use.kind();
  }
  EXPECT_THAT(kinds,
              testing::UnorderedElementsAre("weights", "embedding", "norms", "rope", "kv_full",
                                            "kv_sliding", "activations", "logits"));
}

}  // namespace
}  // namespace weightless::worker
