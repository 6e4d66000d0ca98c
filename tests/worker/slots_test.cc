// What a plan may say: each rule of proto/worker.proto broken once.
#include "worker/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

using testing::HasSubstr;

constexpr PlanLimits kLimits{.vocab_size = 4096,
                             .num_slots = 4,
                             .max_context = 256,
                             .max_step_tokens = 96,
                             .sliding_window = 64,
                             .num_full_blocks = 32,
                             .num_sliding_blocks = 16};

// Slot 0 decodes (70 of 70 tokens computed, one drawn), slot 1 has 64 of 80 computed, slot 2 holds
// a sequence without blocks, slot 3 is free.
Slots BusySlots() {
  Slots slots(kLimits);
  proto::StepPlan plan;
  plan.set_step(1);
  AddAdmit(plan, 0, ArbitraryPrompt(70, 0));
  AddAdmit(plan, 1, ArbitraryPrompt(80, 0)).set_num_cached_tokens(64);
  AddAdmit(plan, 2, ArbitraryPrompt(100, 0));
  AddBlocks(plan, 0, 0, {0, 1}, {0, 1});
  AddBlocks(plan, 1, 0, {2, 3}, {2, 3});
  AddPrefill(plan, 0, 70);
  const auto runs = slots.Apply(plan);
  EXPECT_TRUE(runs.ok()) << runs.status();
  for (const Run& run : *runs) slots.Commit(run);
  return slots;
}

struct Case {
  const char* message;  // part of it
  std::function<void(proto::StepPlan&)> fill;
};

// A valid admission into the free slot, to be spoiled.
proto::Admit& Fresh(proto::StepPlan& plan) { return AddAdmit(plan, 3, ArbitraryPrompt(10, 0)); }
proto::Sampling& FreshSampling(proto::StepPlan& plan) { return *Fresh(plan).mutable_sampling(); }

void ExpectRefused(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    Slots slots = BusySlots();
    proto::StepPlan plan;
    plan.set_step(2);
    c.fill(plan);
    const auto runs = slots.Apply(plan);
    EXPECT_EQ(runs.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(runs.status().message()), HasSubstr(c.message));
  }
}

TEST(SlotsTest, RefusesBadStepsSlotsAndAdmissions) {
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  ExpectRefused({
      {"step 7 is not 2", [](auto& p) { p.set_step(7); }},
      {"release 4 is not below num_slots 4", [](auto& p) { p.add_release(4); }},
      {"release 3: the slot is free", [](auto& p) { p.add_release(3); }},
      {"release 0: the slot is free",
       [](auto& p) {
         p.add_release(0);
         p.add_release(0);
       }},
      {"admit.slot 4294967295 is not below", [](auto& p) { Fresh(p).set_slot(kHuge); }},
      {"admit.slot 0 is in use", [](auto& p) { Fresh(p).set_slot(0); }},
      {"admit.tokens: 0 are outside 1 .. max_context 256",
       [](auto& p) { Fresh(p).clear_tokens(); }},
      {"admit.tokens: 257 are outside", [](auto& p) { AddAdmit(p, 3, ArbitraryPrompt(257, 0)); }},
      {"admit.tokens 4096 is outside 0 .. 4095", [](auto& p) { Fresh(p).set_tokens(3, 4096); }},
      {"admit.tokens -1 is outside", [](auto& p) { Fresh(p).set_tokens(0, -1); }},
      {"admit.num_prompt_tokens 0 is outside", [](auto& p) { Fresh(p).set_num_prompt_tokens(0); }},
      {"admit.num_prompt_tokens 11 is outside 1 .. 10",
       [](auto& p) { Fresh(p).set_num_prompt_tokens(11); }},
      {"admit.num_cached_tokens 1 is not a multiple",
       [](auto& p) { Fresh(p).set_num_cached_tokens(1); }},
      {"admit.num_cached_tokens 64 is not a multiple of block_size 64 below 10",
       [](auto& p) { Fresh(p).set_num_cached_tokens(64); }},
      {"admit.prompt_logprobs 21 exceeds 20", [](auto& p) { Fresh(p).set_prompt_logprobs(21); }},
  });
}

TEST(SlotsTest, RefusesSamplingOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused({
      {"sampling.temperature -0.5 is outside 0 .. 2",
       [](auto& p) { FreshSampling(p).set_temperature(-0.5f); }},
      {"sampling.temperature nan", [nan](auto& p) { FreshSampling(p).set_temperature(nan); }},
      {"sampling.top_p 1.5 is outside", [](auto& p) { FreshSampling(p).set_top_p(1.5f); }},
      {"sampling.min_p -1 is outside", [](auto& p) { FreshSampling(p).set_min_p(-1); }},
      {"sampling.repetition_penalty 2.5",
       [](auto& p) { FreshSampling(p).set_repetition_penalty(2.5f); }},
      {"sampling.presence_penalty -3", [](auto& p) { FreshSampling(p).set_presence_penalty(-3); }},
      {"sampling.frequency_penalty 3", [](auto& p) { FreshSampling(p).set_frequency_penalty(3); }},
      {"sampling.logprobs 21 exceeds 20", [](auto& p) { FreshSampling(p).set_logprobs(21); }},
      {"sampling.stop_token_ids 5000 is outside",
       [](auto& p) { FreshSampling(p).add_stop_token_ids(5000); }},
      {"sampling.stop_token_ids entries 1025 exceeds 1024",
       [](auto& p) { FreshSampling(p).mutable_stop_token_ids()->Resize(1025, 1); }},
      {"sampling.logit_bias.token -7 is outside",
       [](auto& p) { FreshSampling(p).add_logit_bias()->set_token(-7); }},
      {"sampling.logit_bias.bias 101 is outside",
       [](auto& p) { FreshSampling(p).add_logit_bias()->set_bias(101); }},
      {"sampling.logit_bias entries 1025 exceeds 1024",
       [](auto& p) {
         proto::Sampling& sampling = FreshSampling(p);
         for (int i = 0; i < 1025; ++i) sampling.add_logit_bias();
       }},
  });
}

TEST(SlotsTest, RefusesBlocksOutsideTheirPool) {
  ExpectRefused({
      {"grow: 33 entries exceed 32, one for each block of each slot",
       [](auto& p) {
         for (int i = 0; i < 33; ++i) AddBlocks(p, 0, 2, {}, {4});
       }},
      {"grow.slot 9 is not below", [](auto& p) { AddBlocks(p, 9, 0, {1}, {}); }},
      {"grow.slot 3: the slot is free", [](auto& p) { AddBlocks(p, 3, 0, {1}, {}); }},
      {"grow.pool 0 is neither", [](auto& p) { p.add_grow()->add_blocks(0); }},
      {"grow.blocks 32 is not below num_full_blocks 32",
       [](auto& p) { AddBlocks(p, 0, 2, {32}, {}); }},
      {"grow.blocks 16 is not below num_sliding_blocks 16",
       [](auto& p) { AddBlocks(p, 0, 2, {}, {16}); }},
      {"grow.first 4 with 1 blocks exceeds the 4 blocks of max_context 256",
       [](auto& p) { AddBlocks(p, 0, 4, {1}, {}); }},
      {"grow.first 4294967295",
       [](auto& p) {
         AddBlocks(p, 0, -1, {1, 2}, {});
       }},
  });
}

TEST(SlotsTest, RefusesRunsThatCannotBeComputed) {
  ExpectRefused({
      {"prefill.slot 4 is not below", [](auto& p) { AddPrefill(p, 4, 1); }},
      {"prefill.slot 3: the slot is free", [](auto& p) { AddPrefill(p, 3, 1); }},
      {"prefill.num_tokens 0 of slot 1 is outside 1 .. 16", [](auto& p) { AddPrefill(p, 1, 0); }},
      {"prefill.num_tokens 17 of slot 1", [](auto& p) { AddPrefill(p, 1, 17); }},
      {"prefill.num_tokens 1 of slot 0 is outside 1 .. 0", [](auto& p) { AddPrefill(p, 0, 1); }},
      {"slot 1 runs twice",
       [](auto& p) {
         AddPrefill(p, 1, 1);
         AddPrefill(p, 1, 1);
       }},
      {"step tokens: 97 exceed max_step_tokens 96",
       [](auto& p) {
         AddBlocks(p, 2, 0, {4, 5}, {4, 5});
         AddPrefill(p, 1, 1);
         AddPrefill(p, 2, 96);
       }},
      {"slot 2: full block table does not cover positions 0 .. 64",
       [](auto& p) {
         AddBlocks(p, 2, 0, {4}, {4, 5});
         AddPrefill(p, 2, 65);
       }},
      {"slot 2: sliding block table does not cover positions 0 .. 64",
       [](auto& p) {
         AddBlocks(p, 2, 0, {4, 5}, {4});
         AddPrefill(p, 2, 65);
       }},
      {"decode.slots 4 is not below", [](auto& p) { SetDecode(p, {4}); }},
      {"decode.slots 1: 64 of 80 known tokens", [](auto& p) { SetDecode(p, {1}); }},
      {"slot 0 runs twice",
       [](auto& p) {
         SetDecode(p, {0, 0});
       }},
      {"decode.slots 1: 64 of 80",
       [](auto& p) {
         AddPrefill(p, 1, 16);
         SetDecode(p, {1});
       }},
  });
}

TEST(SlotsTest, SlidingTableMayBeStaleBehindTheWindow) {
  Slots slots(kLimits);
  proto::StepPlan plan;
  plan.set_step(1);
  AddAdmit(plan, 0, ArbitraryPrompt(200, 0)).set_num_cached_tokens(192);
  AddBlocks(plan, 0, 0, {0, 1, 2, 3}, {});
  AddBlocks(plan, 0, 2, {}, {2, 3});  // positions from 129 on are visible
  AddPrefill(plan, 0, 8);
  EXPECT_TRUE(slots.Apply(plan).ok());
}

TEST(SlotsTest, NamesFreeAndEndedSlotsInDecodeWithoutHarm) {
  Slots slots = BusySlots();
  proto::StepPlan plan;
  plan.set_step(2);
  SetDecode(plan, {3, 0});
  const auto runs = slots.Apply(plan);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_EQ(runs->front().slot, 0);
  EXPECT_EQ(runs->front().first, 70);
}

TEST(SlotsTest, ReusesASlotInThePlanThatReleasesIt) {
  Slots slots = BusySlots();
  proto::StepPlan plan;
  plan.set_step(2);
  plan.add_release(0);
  AddAdmit(plan, 0, ArbitraryPrompt(3, 0));
  AddBlocks(plan, 0, 0, {9}, {9});
  AddPrefill(plan, 0, 3);
  const auto runs = slots.Apply(plan);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ(runs->size(), 1u);
}

}  // namespace
}  // namespace weightless::worker
