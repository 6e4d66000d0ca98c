// The engine against values computed by another implementation, on the tiny model.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <sstream>

#include "common/json.h"
#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

using kernels::DType;
using kernels::KernelFamily;

struct Golden {
  std::string prompt;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::vector<float> last_logits;
};

std::vector<Golden> ReadGolden() {
  std::ifstream file(WEIGHTLESS_SOURCE_DIR "/tests/golden/tiny-gemma3-golden.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto json = ParseJson(text.str());
  std::vector<Golden> all;
  for (const auto& value : json->at("golden").as_array()) {
    all.push_back({boost::json::value_to<std::string>(value.at("prompt")),
                   boost::json::value_to<std::vector<int32_t>>(value.at("ids")),
                   boost::json::value_to<std::vector<int32_t>>(value.at("greedy_f32")),
                   boost::json::value_to<std::vector<float>>(value.at("last_logits_f32"))});
  }
  return all;
}

proto::Sampling StopAtEos(const Engine& engine) {
  proto::Sampling sampling;
  *sampling.mutable_stop_token_ids() = engine.description().model().eos_token_ids();
  return sampling;
}

class EngineGoldenTest : public testing::TestWithParam<KernelFamily> {};

TEST_P(EngineGoldenTest, Float32LogitsAndGreedyTokensAreTheReferenceModels) {
  const auto engine = MakeTestEngine({.family = GetParam()});
  const std::vector<Golden> all = ReadGolden();
  ASSERT_FALSE(all.empty());
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.prompt);
    const Generated out = GenerateAlone(*engine, golden.ids, static_cast<int>(golden.greedy.size()),
                                        StopAtEos(*engine));
    EXPECT_EQ(out.tokens, golden.greedy);
    ASSERT_EQ(out.logits.front().size(), golden.last_logits.size());
    float worst = 0;
    for (size_t i = 0; i < golden.last_logits.size(); ++i) {
      worst = std::max(worst, std::abs(out.logits.front()[i] - golden.last_logits[i]));
    }
    EXPECT_LT(worst, 1e-3f);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineGoldenTest,
                         testing::Values(KernelFamily::kReference, KernelFamily::kAuto),
                         [](const auto& test) {
                           return test.param == KernelFamily::kReference ? "Reference" : "Fast";
                         });

TEST(EngineGgufTest, GivesTheBitsOfTheSafetensors) {
  const auto safetensors = MakeTestEngine({.dtype = DType::kBF16});
  const auto gguf =
      MakeTestEngine({.dtype = DType::kBF16, .model = "models/tiny-gemma3-bf16.gguf"});
  for (const Golden& golden : ReadGolden()) {
    SCOPED_TRACE(golden.prompt);
    const int count = static_cast<int>(golden.greedy.size());
    const Generated expected =
        GenerateAlone(*safetensors, golden.ids, count, StopAtEos(*safetensors));
    const Generated actual = GenerateAlone(*gguf, golden.ids, count, StopAtEos(*gguf));
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_TRUE(actual.logits == expected.logits);
  }
}

TEST(EngineWarmUpTest, LeavesTheEngineReadyForStepOne) {
  const auto engine = MakeTestEngine();
  EXPECT_EQ(engine->WarmUp(), absl::OkStatus());
  proto::StepPlan plan;
  plan.set_step(1);
  EXPECT_TRUE(engine->Step(plan).ok());
}

}  // namespace
}  // namespace weightless::worker
