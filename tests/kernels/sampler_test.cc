#include "kernels/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "kernels/backend.h"
#include "kernels/philox.h"

namespace weightless::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> NormalLogits(size_t size, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& l : logits) l = normal(random);
  return logits;
}

int32_t SampleAt(std::vector<float>& logits, const SamplingParams& params, size_t position) {
  Sampler sampler;
  const std::vector<int32_t> tokens(position, 0);
  return sampler
      .Sample(
          logits,
          {.params = &params, .tokens = tokens, .num_prompt_tokens = static_cast<int>(position)})
      .token;
}

// Ids that can be drawn, and their probabilities, by sorting everything in float64.
std::vector<std::pair<int32_t, double>> Expected(const std::vector<float>& logits,
                                                 const SamplingParams& p) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(p.top_k)));
  const double max = static_cast<double>(logits[static_cast<size_t>(order.front())]);
  std::vector<std::pair<int32_t, double>> kept;
  double total = 0;
  for (const int32_t id : order) {
    const double logit = static_cast<double>(logits[static_cast<size_t>(id)]);
    kept.emplace_back(id, std::exp((logit - max) / static_cast<double>(p.temperature)));
    total += kept.back().second;
  }
  double mass = 0;
  size_t count = 0;
  while (count < kept.size() && mass < static_cast<double>(p.top_p) * total) {
    mass += kept[count++].second;
  }
  kept.resize(std::max<size_t>(count, 1));
  std::erase_if(kept, [&](const auto& c) { return c.second < static_cast<double>(p.min_p); });
  total = 0;
  for (const auto& c : kept) total += c.second;
  for (auto& c : kept) c.second /= total;
  return kept;
}

TEST(PhiloxTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformDependsOnSeedAndPosition) {
  std::set<double> values;
  for (int64_t seed : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1} << 40}) {
    for (int64_t position = 0; position < 100; ++position) {
      const double u = UniformAt(seed, position);
      EXPECT_GE(u, 0);
      EXPECT_LT(u, 1);
      values.insert(u);
    }
  }
  EXPECT_EQ(values.size(), 400u);
}

TEST(SamplerTest, GreedyTakesTheSmallestIdOfTheLargest) {
  for (const size_t size : {size_t{1}, size_t{2}, size_t{15}, size_t{17}, size_t{1000}}) {
    std::vector<float> logits(size, -3.0f);
    EXPECT_EQ(SampleAt(logits, {}, 0), 0);
    logits[size - 1] = -1;
    EXPECT_EQ(SampleAt(logits, {}, 0), static_cast<int32_t>(size) - 1);
    logits[size / 2] = -1;
    EXPECT_EQ(SampleAt(logits, {}, 0), static_cast<int32_t>(size / 2));
  }
}

TEST(SamplerTest, DrawsExactlyTheCandidatesOfAFullSort) {
  std::vector<float> logits = NormalLogits(3000, 2, 1);
  logits[7] = logits[2000];  // a tie
  for (const SamplingParams& p : {SamplingParams{.temperature = 1, .top_k = 5},
                                  SamplingParams{.temperature = 0.5f, .top_p = 0.5f},
                                  SamplingParams{.temperature = 1.5f, .top_k = 40, .top_p = 0.8f},
                                  SamplingParams{.temperature = 1, .min_p = 0.2f},
                                  SamplingParams{.temperature = 0.7f, .top_p = 0.6f, .min_p = 0.1f},
                                  SamplingParams{.temperature = 1, .top_k = 1},
                                  SamplingParams{.temperature = 1, .top_p = 1e-6f}}) {
    SCOPED_TRACE(testing::Message() << "top_k " << p.top_k << " top_p " << p.top_p);
    std::set<int32_t> expected;
    for (const auto& c : Expected(logits, p)) expected.insert(c.first);
    std::set<int32_t> drawn;
    for (size_t position = 0; position < 60 * expected.size() + 500; ++position) {
      drawn.insert(SampleAt(logits, p, position));
    }
    for (const int32_t id : drawn) EXPECT_TRUE(expected.contains(id)) << id;
    // The rarest candidates may be missed; most are not.
    EXPECT_GT(drawn.size(), expected.size() * 8 / 10);
    EXPECT_TRUE(drawn.contains(Expected(logits, p).front().first));
  }
}

TEST(SamplerTest, DrawsWithTheRightFrequencies) {
  std::vector<float> logits = NormalLogits(50, 1, 3);
  for (const SamplingParams& p : {SamplingParams{.temperature = 1},
                                  SamplingParams{.temperature = 0.8f, .top_k = 20, .top_p = 0.9f},
                                  SamplingParams{.temperature = 2, .top_p = 0.95f}}) {
    constexpr int kDraws = 200'000;
    std::vector<int> counts(50);
    const std::vector<int32_t> tokens(kDraws, 0);
    Sampler sampler;
    for (size_t i = 0; i < kDraws; ++i) {
      const SampledToken t = sampler.Sample(
          logits, {.params = &p, .tokens = {tokens.data(), i}, .num_prompt_tokens = 1});
      ++counts[static_cast<size_t>(t.token)];
    }
    const auto expected = Expected(logits, p);
    double chi_square = 0;
    for (const auto& [id, probability] : expected) {
      const double mean = probability * kDraws;
      const double difference = counts[static_cast<size_t>(id)] - mean;
      chi_square += difference * difference / mean;
    }
    // The 99.9th percentile of chi-square is below n + 3.1 sqrt(2 n) + 7 for n degrees of freedom.
    const auto n = static_cast<double>(expected.size() - 1);
    EXPECT_LT(chi_square, n + 3.1 * std::sqrt(2 * n) + 7);
  }
}

TEST(SamplerTest, TopKBreaksTiesBySmallerId) {
  std::vector<float> logits(100, 1.0f);
  logits[90] = 2;
  std::set<int32_t> drawn;
  for (size_t i = 0; i < 300; ++i) {
    drawn.insert(SampleAt(logits, {.temperature = 1, .top_k = 4}, i));
  }
  EXPECT_THAT(drawn, testing::ElementsAre(0, 1, 2, 90));
}

TEST(SamplerTest, AFlatVocabularyKeepsItsShareOfIds) {
  std::vector<float> logits(262144, 0.25f);
  int32_t largest = 0;
  for (size_t i = 0; i < 80; ++i) {
    largest = std::max(largest, SampleAt(logits, {.temperature = 1, .top_p = 0.5f}, i));
  }
  EXPECT_LT(largest, 131072 + 8);
  EXPECT_GT(largest, 120000);
}

TEST(SamplerTest, OneTokenWithAllTheMassAlwaysWins) {
  std::vector<float> logits(1000, 0.0f);
  logits[321] = 500;
  for (const SamplingParams& p :
       {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 1, .top_p = 1},
        SamplingParams{.temperature = 1, .top_p = 0.999f},
        SamplingParams{.temperature = 1e-30f, .top_k = 50}}) {
    for (size_t i = 0; i < 50; ++i) EXPECT_EQ(SampleAt(logits, p, i), 321);
  }
}

TEST(SamplerTest, ADrawDependsOnSeedAndPositionOnly) {
  std::vector<float> logits = NormalLogits(500, 1, 5);
  const SamplingParams p{.temperature = 1, .seed = -42};
  const int32_t token = SampleAt(logits, p, 17);
  EXPECT_EQ(SampleAt(logits, p, 17), token);
  std::set<int32_t> by_seed;
  for (int64_t seed = 0; seed < 50; ++seed) {
    by_seed.insert(SampleAt(logits, {.temperature = 1, .seed = seed}, 17));
  }
  EXPECT_GT(by_seed.size(), 30u);
}

TEST(SamplerTest, PenaltiesFollowPromptAndOutput) {
  // Prompt: 1, 2. Output: 2, 3, 3.
  const std::vector<int32_t> tokens = {1, 2, 2, 3, 3};
  const auto greedy = [&](std::vector<float> logits, SamplingParams p) {
    Sampler sampler;
    return sampler.Sample(logits, {.params = &p, .tokens = tokens, .num_prompt_tokens = 2}).token;
  };
  // Repetition divides positive logits of all seen tokens and multiplies negative ones.
  EXPECT_EQ(greedy({1, 1.9f, 1.9f, 1.9f}, {.repetition_penalty = 2}), 0);
  EXPECT_EQ(greedy({-1.5f, -1, -1, -1}, {.repetition_penalty = 2}), 0);
  EXPECT_EQ(greedy({-1.5f, -0.5f, -1, -1}, {.repetition_penalty = 2}), 1);
  // Presence: once for output tokens, never for the prompt.
  EXPECT_EQ(greedy({0, 0.5f, 0.9f, 0.9f}, {.presence_penalty = 1}), 1);
  EXPECT_EQ(greedy({0, 0, 1.5f, 1.6f}, {.presence_penalty = 1}), 3);
  // Frequency: by count.
  EXPECT_EQ(greedy({0, 0, 1.5f, 2.4f}, {.frequency_penalty = 1}), 2);
  // Extreme values stay finite.
  EXPECT_EQ(greedy({1, 2, 2, 2}, {.repetition_penalty = 1e-40f}), 1);
}

TEST(SamplerTest, BiasAndMinTokensDecideWhatCanBeDrawn) {
  const auto greedy = [](const SamplingParams& p, size_t num_output) {
    std::vector<float> logits = {0, 3, 2, 1};
    Sampler sampler;
    const std::vector<int32_t> tokens(2 + num_output, 0);
    const int32_t token =
        sampler.Sample(logits, {.params = &p, .tokens = tokens, .num_prompt_tokens = 2}).token;
    EXPECT_THAT(logits, testing::ElementsAre(0, 3, 2, 1)) << "logits are restored";
    return token;
  };
  EXPECT_EQ(greedy({.logit_bias = {{3, 100.0f}}}, 0), 3);
  EXPECT_EQ(greedy({.logit_bias = {{1, -100.0f}, {99, 5.0f}, {-1, 5.0f}}}, 0), 2);
  const SamplingParams min_tokens{.stop_token_ids = {1, 2, 77}, .min_tokens = 2};
  EXPECT_EQ(greedy(min_tokens, 0), 3);
  EXPECT_EQ(greedy(min_tokens, 1), 3);
  EXPECT_EQ(greedy(min_tokens, 2), 1);
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_EQ(
        greedy({.temperature = temperature, .stop_token_ids = {0, 1, 2, 3}, .min_tokens = 1}, 0),
        0);
  }
}

TEST(SamplerTest, LogprobsAreOfTheRawLogits) {
  std::vector<float> logits = NormalLogits(5000, 3, 9);
  logits[10] = logits[20] = 15;
  const std::vector<float> before = logits;
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l));
  const SamplingParams p{.temperature = 0.3f, .logit_bias = {{4000, 90.0f}}};
  Sampler sampler;
  const SampledToken t = sampler.Sample(logits, {.params = &p, .num_logprobs = 3});
  EXPECT_EQ(logits, before);
  EXPECT_EQ(t.token, 4000);
  EXPECT_NEAR(t.logprob, static_cast<double>(before[4000]) - std::log(total), 1e-5);
  EXPECT_EQ(t.rank, 1 + std::count_if(before.begin(), before.end(),
                                      [&](float l) { return l > before[4000]; }));
  ASSERT_EQ(t.num_top, 3);
  EXPECT_EQ(t.top_tokens[0], 10);
  EXPECT_EQ(t.top_tokens[1], 20);
  EXPECT_NEAR(t.top_logprobs[0], 15 - std::log(total), 1e-5);
  // Equal logits rank by id.
  for (const auto& [target, rank] : std::vector<std::pair<int32_t, int>>{{10, 1}, {20, 2}}) {
    const SampledToken report =
        sampler.Sample(logits, {.draw = false, .target_token = target, .num_logprobs = 0});
    EXPECT_EQ(report.token, target);
    EXPECT_EQ(report.rank, rank);
    EXPECT_EQ(report.num_top, 0);
  }
}

constexpr int kRows = 9;
constexpr int64_t kVocab = 5000;

bool Same(const SampledToken& a, const SampledToken& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

class SlotStatesTest : public testing::TestWithParam<KernelFamily> {
 protected:
  // Row i belongs to slot Slot(i), whose sequence holds i + 1 prompt tokens.
  static int32_t Slot(int i) { return kRows - i; }

  SlotStatesTest() {
    for (int i = 0; i < kRows; ++i) {
      params_.push_back({.temperature = i % 3 == 0 ? 0.0f : 1.0f,
                         .top_k = i * 7,
                         .repetition_penalty = 1.5f,
                         .frequency_penalty = 0.5f,
                         .seed = i,
                         .num_logprobs = i - 1,
                         .num_prompt_logprobs = 2});
      tokens_.emplace_back(static_cast<size_t>(i) + 1, 100 + i);
      slots_.push_back(Slot(i));
      states_->Admit(Slot(i), params_.back(), tokens_.back(), i + 1);
    }
  }
  std::vector<float> Logits(unsigned seed) { return NormalLogits(kRows * kVocab, 2, seed); }
  TensorView View(std::vector<float>& logits) {
    return {logits.data(), DType::kF32, kRows, kVocab};
  }
  SampledToken Alone(std::vector<float>& logits, int i) {
    const auto row = static_cast<size_t>(i);
    return sampler_.Sample({logits.data() + i * kVocab, kVocab}, {.params = &params_[row],
                                                                  .tokens = tokens_[row],
                                                                  .num_prompt_tokens = i + 1,
                                                                  .num_logprobs = i - 1});
  }

  const std::unique_ptr<Backend> backend_ =
      MakeCpuBackend({.family = GetParam(), .num_threads = 3});
  const std::unique_ptr<SlotStates> states_ = backend_->MakeSlotStates(kRows + 1, 100, kVocab);
  std::vector<SamplingParams> params_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<int32_t> slots_;
  Sampler sampler_;
};
INSTANTIATE_TEST_SUITE_P(Families, SlotStatesTest,
                         testing::Values(KernelFamily::kReference, KernelFamily::kAuto));

TEST_P(SlotStatesTest, DrawnTokensCountInTheNextDrawAndAreFedBack) {
  for (unsigned step = 0; step < 4; ++step) {
    std::vector<float> logits = Logits(step);
    std::vector<SampledToken> together(kRows);
    backend_->Sample(View(logits), slots_.data(), *states_, together.data());
    std::vector<int32_t> fed(kRows);
    backend_->FeedTokens(*states_, slots_.data(), kRows, fed.data());
    for (int i = 0; i < kRows; ++i) {
      const auto row = static_cast<size_t>(i);
      const SampledToken alone = Alone(logits, i);
      EXPECT_TRUE(Same(together[row], alone)) << i;
      EXPECT_EQ(fed[row], alone.token);
      tokens_[row].push_back(alone.token);
    }
  }
}

TEST_P(SlotStatesTest, ScoringChangesNothing) {
  std::vector<float> logits = Logits(1);
  std::vector<SampledToken> first(kRows), second(kRows);
  backend_->Sample(View(logits), slots_.data(), *states_, first.data());
  for (int i = 0; i < kRows; ++i) {
    const auto row = static_cast<size_t>(i);
    tokens_[row].push_back(first[row].token);
  }
  const std::vector<int32_t> slots(kRows, Slot(4));
  const std::vector<int32_t> targets = {0, 1, 2, 3, 4, 5, 6, 7, 4999};
  backend_->Score(View(logits), slots.data(), targets.data(), *states_, second.data());
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(second[i].token, targets[i]);
    EXPECT_EQ(second[i].num_top, 2);
    EXPECT_EQ(second[i].is_stop, 0);
  }
  backend_->Sample(View(logits), slots_.data(), *states_, second.data());
  for (int i = 0; i < kRows; ++i) {
    EXPECT_TRUE(Same(second[static_cast<size_t>(i)], Alone(logits, i))) << i;
  }
}

TEST_P(SlotStatesTest, SaysThatAStopTokenWasDrawnAndForgetsASequenceWhenTheNextComes) {
  std::vector<float> logits = Logits(2);
  logits[77] = logits[kVocab + 78] = 50;
  states_->Admit(Slot(0), {.stop_token_ids = {3, 77}}, {}, 0);
  states_->Admit(Slot(1), {.stop_token_ids = {3, 77}}, {}, 0);
  std::vector<SampledToken> out(kRows);
  backend_->Sample(View(logits), slots_.data(), *states_, out.data());
  EXPECT_EQ(out[0].token, 77);
  EXPECT_EQ(out[0].is_stop, 1);
  EXPECT_EQ(out[1].token, 78);
  EXPECT_EQ(out[1].is_stop, 0);
  EXPECT_EQ(out[1].num_top, -1);
}

TEST(SamplerDeathTest, RefusesLogitsThatAreNotNumbers) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    std::vector<float> logits(100, 1.0f);
    logits[70] = bad;
    EXPECT_DEATH(SampleAt(logits, {}, 0), "CHECK failed");
  }
  std::vector<float> logits(100, -kInfinity);
  logits[70] = -1;
  EXPECT_EQ(SampleAt(logits, {.temperature = 1, .top_k = 50}, 0), 70);
}

TEST(LogitScanTest, WeightIsExp) {
  for (float x = -90; x <= 0; x += 0.0137f) {
    const double expected = std::exp(static_cast<double>(x));
    const double weight = static_cast<double>(Weight(x, 0, 1));
    if (x < -87) {
      EXPECT_EQ(weight, 0);
    } else {
      EXPECT_NEAR(weight / expected, 1, 3e-7) << x;
    }
  }
}

}  // namespace
}  // namespace weightless::kernels
