// A sequence's bits depend on nothing but its own tokens: not on chunks, company, slot or blocks.
#include <gtest/gtest.h>

#include <random>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

using kernels::DType;

constexpr int kNumOutput = 8;

// Everything that could depend on position, seed or history.
proto::Sampling ManySettings(int64_t seed) {
  proto::Sampling sampling;
  sampling.set_temperature(1.3f);
  sampling.set_top_k(50);
  sampling.set_top_p(0.95f);
  sampling.set_repetition_penalty(1.1f);
  sampling.set_frequency_penalty(0.3f);
  sampling.set_presence_penalty(-0.2f);
  sampling.set_seed(seed);
  return sampling;
}

class EngineExactnessTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Engine> engine_ = MakeTestEngine({.dtype = GetParam()});
};

TEST_P(EngineExactnessTest, ChunkedPrefillIsWholePrefill) {
  const std::vector<int32_t> prompt = ArbitraryPrompt(150, 1);
  const Generated whole = GenerateAlone(*engine_, prompt, kNumOutput);

  Recorder recorder(*engine_);
  proto::StepPlan plan;
  AddAdmit(plan, 5, prompt);
  AddBlocks(plan, 5, 0, Blocks(40, 3, -1), Blocks(7, 3, 11));
  AddPrefill(plan, 5, 1);
  recorder.Run(plan);
  for (const int chunk : {63, 70, 16}) {
    plan.Clear();
    if (chunk == 16) AddBlocks(plan, 5, 0, {}, {63});  // behind the window: may be anything
    AddPrefill(plan, 5, chunk);
    recorder.Run(plan);
  }
  plan.Clear();
  SetDecode(plan, {5});
  for (int i = 1; i < kNumOutput; ++i) recorder.Run(plan);
  EXPECT_EQ(recorder.slot(5).tokens, whole.tokens);
  EXPECT_TRUE(recorder.slot(5).logits == whole.logits);
}

TEST_P(EngineExactnessTest, BatchedIsAlone) {
  const std::vector<int> lengths = {1, 3, 64, 65, 90, 130};
  std::vector<Generated> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    alone.push_back(GenerateAlone(*engine_, ArbitraryPrompt(lengths[i], static_cast<uint32_t>(i)),
                                  kNumOutput, ManySettings(static_cast<int64_t>(i) - 2)));
  }
  // Sequence i is prefilled whole in step i, beside the decodes of those before it.
  Recorder recorder(*engine_);
  std::vector<int> decoding;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int slot = static_cast<int>(i);
    proto::StepPlan plan;
    *AddAdmit(plan, slot, ArbitraryPrompt(lengths[i], static_cast<uint32_t>(i)))
         .mutable_sampling() = ManySettings(slot - 2);
    AddBlocks(plan, slot, 0, Blocks(static_cast<uint32_t>(slot), 3, 8),
              Blocks(static_cast<uint32_t>(40 + slot), 3, -6));
    SetDecode(plan, decoding);
    AddPrefill(plan, slot, lengths[i]);
    recorder.Run(plan);
    decoding.push_back(slot);
  }
  proto::StepPlan plan;
  SetDecode(plan, decoding);
  for (int i = 1; i < kNumOutput; ++i) {
    recorder.Run(plan);
    plan.Clear();
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    SCOPED_TRACE(i);
    Generated& out = recorder.slot(static_cast<int>(i));
    out.tokens.resize(kNumOutput);
    out.logits.resize(kNumOutput);
    EXPECT_EQ(out.tokens, alone[i].tokens);
    EXPECT_TRUE(out.logits == alone[i].logits);
  }
}

TEST_P(EngineExactnessTest, MovedIsUndisturbed) {
  const std::vector<int32_t> prompt = ArbitraryPrompt(70, 3);
  const Generated undisturbed = GenerateAlone(*engine_, prompt, kNumOutput, ManySettings(-9));

  const Generated before = GenerateAlone(*engine_, prompt, 5, ManySettings(-9));
  std::vector<int32_t> known = prompt;
  known.insert(known.end(), before.tokens.begin(), before.tokens.end());
  Recorder recorder(*engine_);
  proto::StepPlan plan;
  proto::Admit& admit = AddAdmit(plan, 2, known);
  admit.set_num_prompt_tokens(static_cast<uint32_t>(prompt.size()));
  *admit.mutable_sampling() = ManySettings(-9);
  AddBlocks(plan, 2, 0, Blocks(20, 2), Blocks(30, 2));
  AddPrefill(plan, 2, static_cast<int>(known.size()));
  recorder.Run(plan);
  plan.Clear();
  SetDecode(plan, {2});
  for (int i = 6; i < kNumOutput; ++i) recorder.Run(plan);

  const std::vector<int32_t> rest(undisturbed.tokens.begin() + 5, undisturbed.tokens.end());
  const std::vector<std::vector<float>> rest_logits(undisturbed.logits.begin() + 5,
                                                    undisturbed.logits.end());
  EXPECT_EQ(recorder.slot(2).tokens, rest);
  EXPECT_TRUE(recorder.slot(2).logits == rest_logits);
}

TEST_P(EngineExactnessTest, CachedPrefixIsCold) {
  const std::vector<int32_t> prompt = ArbitraryPrompt(140, 4);
  const Generated cold = GenerateAlone(*engine_, prompt, kNumOutput);

  Recorder recorder(*engine_);
  proto::StepPlan plan;
  std::vector<int32_t> donor = prompt;
  donor.resize(131);
  AddAdmit(plan, 0, donor);
  AddBlocks(plan, 0, 0, {10, 11, 12}, {20, 21, 22});
  AddPrefill(plan, 0, 131);
  recorder.Run(plan);
  // Blocks 0 and 1 are shared. Of the sliding ones only block 1 is inside the window of 64.
  plan.Clear();
  plan.add_release(0);
  AddAdmit(plan, 1, prompt).set_num_cached_tokens(128);
  AddBlocks(plan, 1, 0, {10, 11, 5}, {});
  AddBlocks(plan, 1, 1, {}, {21, 6});
  AddPrefill(plan, 1, 12);
  recorder.Run(plan);
  plan.Clear();
  SetDecode(plan, {1});
  for (int i = 1; i < kNumOutput; ++i) recorder.Run(plan);
  EXPECT_EQ(recorder.slot(1).tokens, cold.tokens);
  EXPECT_TRUE(recorder.slot(1).logits == cold.logits);
}

INSTANTIATE_TEST_SUITE_P(Types, EngineExactnessTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace weightless::worker
