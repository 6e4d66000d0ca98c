#include "worker/local_runner.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

constexpr int kNumOutput = 6;

TEST(LocalRunnerTest, GivesEachSequenceItsTokensAlone) {
  const auto engine = MakeTestEngine({.dtype = kernels::DType::kBF16});
  std::vector<std::vector<int32_t>> expected;
  for (const int length : {1, 70, 300, 5}) {
    expected.push_back(GenerateAlone(*engine, ArbitraryPrompt(length, 1), kNumOutput).tokens);
  }
  LocalRunner runner(*engine);
  std::map<uint32_t, size_t> index_of_slot;
  for (const int length : {1, 70, 300, 5}) {
    const auto slot = runner.Add({.tokens = ArbitraryPrompt(length, 1), .max_tokens = kNumOutput});
    ASSERT_TRUE(slot.ok()) << slot.status();
    index_of_slot.emplace(static_cast<uint32_t>(*slot), index_of_slot.size());
  }
  std::vector<std::vector<int32_t>> actual(expected.size());
  while (!runner.idle()) {
    const auto result = runner.Step();
    ASSERT_TRUE(result.ok()) << result.status();
    for (const auto& slot : result->slots()) {
      actual[index_of_slot.at(slot.slot())].push_back(slot.token());
    }
  }
  EXPECT_EQ(actual, expected);
}

TEST(LocalRunnerTest, RefusesWhatHasNoRoomUntilASequenceEnds) {
  const auto engine =
      MakeTestEngine({.engine = {.num_slots = 2, .num_full_blocks = 3, .num_sliding_blocks = 3}});
  LocalRunner runner(*engine);
  ASSERT_TRUE(runner.Add({.tokens = ArbitraryPrompt(100, 1), .max_tokens = 1}).ok());
  EXPECT_FALSE(runner.HasRoomFor(65));
  EXPECT_EQ(runner.Add({.tokens = ArbitraryPrompt(64, 1), .max_tokens = 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(runner.Add({.tokens = ArbitraryPrompt(10, 1), .max_tokens = 1}).ok());
  EXPECT_FALSE(runner.HasRoomFor(1));
  ASSERT_TRUE(runner.Step().ok());
  EXPECT_TRUE(runner.idle());
  EXPECT_TRUE(runner.HasRoomFor(3 * 64));
}

TEST(LocalRunnerTest, SplitsAPromptLongerThanAStep) {
  const auto engine = MakeTestEngine(
      {.engine = {
           .num_slots = 2, .max_step_tokens = 16, .num_full_blocks = 8, .num_sliding_blocks = 8}});
  LocalRunner runner(*engine);
  ASSERT_TRUE(runner.Add({.tokens = ArbitraryPrompt(40, 1), .max_tokens = 1}).ok());
  for (const uint32_t num_tokens : {16u, 16u, 8u}) {
    const auto result = runner.Step();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->num_tokens(), num_tokens);
  }
  EXPECT_TRUE(runner.idle());
}

}  // namespace
}  // namespace weightless::worker
