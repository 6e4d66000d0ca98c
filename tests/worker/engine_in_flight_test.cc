// Steps launched before the results of earlier ones are read give what they give one at a time.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

constexpr int kStopToken = 77;

std::unique_ptr<Engine> MakeEngine(int steps_in_flight) {
  return MakeTestEngine({.dtype = kernels::DType::kBF16,
                         .engine = {.num_slots = 8,
                                    .num_full_blocks = 64,
                                    .num_sliding_blocks = 64,
                                    .steps_in_flight = steps_in_flight}});
}

// Keeps `depth` steps launched and collects the rest in order.
std::vector<proto::StepResult> RunAhead(Engine& engine, std::vector<proto::StepPlan> plans) {
  std::vector<proto::StepResult> results;
  uint64_t step = 0;
  for (proto::StepPlan& plan : plans) {
    plan.set_step(++step);
    if (!engine.can_launch()) results.push_back(engine.Collect().result);
    const absl::Status status = engine.Launch(plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  while (engine.num_in_flight() > 0) {
    EXPECT_TRUE(engine.is_step_done());
    results.push_back(engine.Collect().result);
  }
  for (proto::StepResult& result : results) result.clear_compute_ns();
  return results;
}

proto::Admit& AddSequence(proto::StepPlan& plan, int slot, const std::vector<int32_t>& prompt) {
  proto::Admit& admit = AddAdmit(plan, slot, prompt);
  const auto first = static_cast<uint32_t>(slot * 4);
  AddBlocks(plan, slot, 0, Blocks(first, 4), Blocks(first, 4));
  AddPrefill(plan, slot, static_cast<int>(prompt.size()));
  return admit;
}

// Draws only kStopToken, which ends the sequence from its third output token on.
void StopAtThirdToken(proto::Sampling& sampling) {
  sampling.add_logit_bias()->set_token(kStopToken);
  sampling.mutable_logit_bias(0)->set_bias(100);
  sampling.add_stop_token_ids(kStopToken);
  sampling.set_min_tokens(2);
}

std::vector<uint32_t> SlotsOf(const proto::StepResult& result) {
  std::vector<uint32_t> slots;
  for (const proto::SlotResult& slot : result.slots()) slots.push_back(slot.slot());
  return slots;
}

TEST(EngineInFlightTest, TokensGoFromStepToStepWithoutTheHost) {
  std::vector<proto::StepPlan> plans(20);
  for (int slot = 0; slot < 3; ++slot) {
    proto::Admit& admit = AddSequence(plans[static_cast<size_t>(2 * slot)], slot,
                                      ArbitraryPrompt(50 + slot, static_cast<uint32_t>(slot)));
    admit.set_prompt_logprobs(1);
    proto::Sampling& sampling = *admit.mutable_sampling();
    sampling.set_temperature(slot == 0 ? 0.0f : 1.2f);
    sampling.set_repetition_penalty(1.3f);
    sampling.set_frequency_penalty(0.4f);
    sampling.set_seed(slot);
    sampling.set_logprobs(static_cast<uint32_t>(slot));
  }
  SetDecode(plans[1], {0});
  SetDecode(plans[3], {0, 1});
  SetDecode(plans[5], {2, 1, 0});
  plans[12].add_release(1);
  const auto expected = RunAhead(*MakeEngine(1), plans);
  for (const int depth : {2, 5}) {
    SCOPED_TRACE(depth);
    const auto engine = MakeEngine(depth);
    for (int round = 0; round < 2; ++round) {
      const auto results = RunAhead(*engine, plans);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].SerializeAsString(), expected[i].SerializeAsString()) << i;
      }
      engine->Reset();
    }
  }
}

TEST(EngineInFlightTest, WhatLaterStepsDrewForAnEndedSequenceIsDropped) {
  std::vector<proto::StepPlan> plans(7);
  StopAtThirdToken(*AddSequence(plans[0], 0, ArbitraryPrompt(5, 2)).mutable_sampling());
  AddSequence(plans[0], 1, ArbitraryPrompt(9, 3));
  SetDecode(plans[1], {0, 1});
  const auto expected = RunAhead(*MakeEngine(1), plans);
  const auto results = RunAhead(*MakeEngine(3), plans);
  ASSERT_EQ(results.size(), plans.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(SlotsOf(results[i]), SlotsOf(expected[i]));
    EXPECT_EQ(SlotsOf(results[i]),
              i <= 2 ? (std::vector<uint32_t>{0, 1}) : std::vector<uint32_t>{1});
    for (int s = 0; s < results[i].slots_size(); ++s) {
      EXPECT_EQ(results[i].slots(s).SerializeAsString(), expected[i].slots(s).SerializeAsString());
    }
  }
  EXPECT_TRUE(results[2].slots(0).ended());
  // Computed in vain until the end was known, then skipped.
  EXPECT_EQ(results[4].num_tokens(), 2u);
  EXPECT_EQ(results[5].num_tokens(), 1u);
}

TEST(EngineInFlightTest, AnEndDoesNotTouchTheNextSequenceOfTheSlot) {
  std::vector<proto::StepPlan> plans(8);
  StopAtThirdToken(*AddSequence(plans[0], 0, ArbitraryPrompt(5, 2)).mutable_sampling());
  SetDecode(plans[1], {0});
  plans[4].add_release(0);
  AddSequence(plans[4], 0, ArbitraryPrompt(30, 4));
  SetDecode(plans[4], {});
  SetDecode(plans[5], {0});
  const auto expected = RunAhead(*MakeEngine(1), plans);
  // The new sequence is launched before the old one is known to have ended.
  const auto results = RunAhead(*MakeEngine(5), plans);
  ASSERT_EQ(results.size(), plans.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(results[i].slots_size(), i == 3 ? 0 : 1);
    ASSERT_EQ(results[i].slots_size(), expected[i].slots_size());
    if (i == 3) continue;
    EXPECT_EQ(results[i].slots(0).SerializeAsString(), expected[i].slots(0).SerializeAsString());
  }
}

TEST(EngineInFlightTest, AFullContextEndsASequenceAtLaunch) {
  const auto engine = MakeTestEngine({.engine = {.max_length = 10,
                                                 .num_slots = 1,
                                                 .num_full_blocks = 1,
                                                 .num_sliding_blocks = 1,
                                                 .steps_in_flight = 5}});
  std::vector<proto::StepPlan> plans(5);
  AddAdmit(plans[0], 0, ArbitraryPrompt(7, 2));
  AddBlocks(plans[0], 0, 0, {0}, {0});
  AddPrefill(plans[0], 0, 7);
  SetDecode(plans[1], {0});
  const auto results = RunAhead(*engine, plans);
  ASSERT_EQ(results.size(), 5u);
  EXPECT_FALSE(results[1].slots(0).ended());
  EXPECT_TRUE(results[2].slots(0).ended());
  EXPECT_EQ(results[3].num_tokens(), 0u);
}

TEST(EngineInFlightTest, ResetForgetsWhatIsInFlight) {
  const auto engine = MakeEngine(3);
  const std::vector<int32_t> prompt = ArbitraryPrompt(20, 1);
  const Generated expected = GenerateAlone(*engine, prompt, 5);
  engine->Reset();
  proto::StepPlan plan;
  AddSequence(plan, 0, ArbitraryPrompt(40, 8));
  plan.set_step(1);
  ASSERT_TRUE(engine->Launch(plan).ok());
  plan.Clear();
  plan.set_step(2);
  SetDecode(plan, {0});
  ASSERT_TRUE(engine->Launch(plan).ok());
  plan.set_step(9);
  EXPECT_FALSE(engine->Launch(plan).ok());
  EXPECT_EQ(engine->Collect().result.slots_size(), 1);
  engine->Reset();
  EXPECT_EQ(engine->num_in_flight(), 0);
  EXPECT_EQ(engine->num_slots_used(), 0);
  EXPECT_EQ(GenerateAlone(*engine, prompt, 5).tokens, expected.tokens);
}

}  // namespace
}  // namespace weightless::worker
