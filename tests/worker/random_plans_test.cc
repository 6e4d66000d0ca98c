// Random schedules of valid plans, and random plans of any kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

constexpr int kBlockSize = 64;
constexpr int kWindow = 64;  // of the tiny model
constexpr int kNumOutput = 10;

using Random = std::minstd_rand;

int Pick(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
}

// Block ids of one pool, handed out in random order.
class RandomBlocks {
 public:
  RandomBlocks(uint32_t count, Random& random) : random_(random), free_(Blocks(0, count)) {}
  size_t num_free() const { return free_.size(); }
  uint32_t Take() {
    std::swap(free_[random_() % free_.size()], free_.back());
    const uint32_t block = free_.back();
    free_.pop_back();
    return block;
  }
  void Give(uint32_t block) { free_.push_back(block); }

 private:
  Random& random_;
  std::vector<uint32_t> free_;
};

// A sequence on its way through a random schedule.
struct Journey {
  std::vector<int32_t> tokens;  // prompt and output so far
  size_t num_prompt = 0;
  size_t num_known = 0;  // at the last admission
  size_t num_computed = 0;
  int slot = -1;  // -1: waits for one
  std::vector<uint32_t> full, sliding;
  size_t sliding_begin = 0;  // blocks before it have been given back

  size_t num_output() const { return tokens.size() - num_prompt; }
  bool done() const { return num_output() >= kNumOutput; }
};

// Moves sequences through an engine by plans that are valid but otherwise arbitrary.
class RandomScheduler {
 public:
  RandomScheduler(Engine& engine, uint32_t seed)
      : recorder_(engine), random_(seed), full_(24, random_), sliding_(20, random_) {}

  void Run(std::vector<Journey>& journeys) {
    while (std::any_of(journeys.begin(), journeys.end(), [](auto& j) { return !j.done(); })) {
      proto::StepPlan plan;
      plan.mutable_decode();
      budget_ = 96;
      for (Journey& journey : journeys) {
        if (journey.slot >= 0 && (journey.done() || Pick(random_, 0, 19) == 0)) {
          Leave(journey, plan);
        }
        if (journey.slot < 0 && !journey.done() && Pick(random_, 0, 3) == 0) Enter(journey, plan);
        if (journey.slot >= 0) Advance(journey, plan);
      }
      Apply(recorder_.Run(plan), journeys);
    }
  }

 private:
  void Leave(Journey& journey, proto::StepPlan& plan) {
    plan.add_release(static_cast<uint32_t>(journey.slot));
    slots_in_use_.erase(journey.slot);
    journey.slot = -1;
    for (const uint32_t block : journey.full) full_.Give(block);
    for (size_t i = journey.sliding_begin; i < journey.sliding.size(); ++i) {
      sliding_.Give(journey.sliding[i]);
    }
    journey.full.clear();
    journey.sliding.clear();
    journey.sliding_begin = 0;
    journey.num_computed = 0;
  }

  void Enter(Journey& journey, proto::StepPlan& plan) {
    const int slot = Pick(random_, 0, 7);
    if (!slots_in_use_.insert(slot).second) return;
    journey.slot = slot;
    journey.num_known = journey.tokens.size();
    proto::Admit& admit = AddAdmit(plan, slot, journey.tokens);
    admit.set_num_prompt_tokens(static_cast<uint32_t>(journey.num_prompt));
    admit.mutable_sampling()->set_temperature(1);
    admit.mutable_sampling()->set_repetition_penalty(1.2f);
    admit.mutable_sampling()->set_seed(static_cast<int64_t>(journey.num_prompt));
  }

  // A prefill chunk or a decode, if there are blocks for it.
  void Advance(Journey& journey, proto::StepPlan& plan) {
    if (Pick(random_, 0, 4) == 0) return;
    const bool decodes = journey.num_computed >= journey.num_known;
    const int left = static_cast<int>(journey.tokens.size() - journey.num_computed);
    const int count = decodes ? 1 : Pick(random_, 1, std::min(left, 80));
    if (count > budget_) return;
    const size_t end = journey.num_computed + static_cast<size_t>(count);
    const size_t num_blocks = (end + kBlockSize - 1) / kBlockSize;
    if (num_blocks > journey.full.size() + full_.num_free()) return;
    if (num_blocks > journey.sliding.size() + sliding_.num_free()) return;
    const size_t visible = journey.num_computed < kWindow ? 0 : journey.num_computed - kWindow + 1;
    for (; journey.sliding_begin < std::min(visible / kBlockSize, journey.sliding.size());
         ++journey.sliding_begin) {
      sliding_.Give(journey.sliding[journey.sliding_begin]);  // others may write it from now on
    }
    const int first = static_cast<int>(journey.full.size());
    std::vector<uint32_t> new_full, new_sliding;
    while (journey.full.size() < num_blocks) {
      journey.full.push_back(new_full.emplace_back(full_.Take()));
      journey.sliding.push_back(new_sliding.emplace_back(sliding_.Take()));
    }
    AddBlocks(plan, journey.slot, first, new_full, new_sliding);
    budget_ -= count;
    journey.num_computed = end;
    if (decodes) {
      plan.mutable_decode()->add_slots(static_cast<uint32_t>(journey.slot));
    } else {
      AddPrefill(plan, journey.slot, count);
    }
  }

  static void Apply(const proto::StepResult& result, std::vector<Journey>& journeys) {
    for (const proto::SlotResult& slot : result.slots()) {
      const auto journey = std::find_if(journeys.begin(), journeys.end(), [&](const Journey& j) {
        return j.slot == static_cast<int>(slot.slot());
      });
      ASSERT_NE(journey, journeys.end());
      journey->tokens.push_back(slot.token());
    }
  }

  Recorder recorder_;
  Random random_;
  RandomBlocks full_, sliding_;
  std::set<int> slots_in_use_;
  int budget_ = 0;
};

TEST(RandomPlansTest, AnyScheduleGivesTheTokensOfEachSequenceAlone) {
  const auto engine = MakeTestEngine({.dtype = kernels::DType::kBF16});
  std::vector<Journey> fresh;
  std::vector<std::vector<int32_t>> expected;
  for (const int length : {1, 2, 17, 63, 64, 65, 100, 127, 128, 150, 190}) {
    Journey journey;
    journey.tokens = ArbitraryPrompt(length, static_cast<uint32_t>(length));
    journey.num_prompt = journey.tokens.size();
    proto::Sampling sampling;
    sampling.set_temperature(1);
    sampling.set_repetition_penalty(1.2f);
    sampling.set_seed(length);
    const Generated alone = GenerateAlone(*engine, journey.tokens, kNumOutput, sampling);
    expected.push_back(journey.tokens);
    expected.back().insert(expected.back().end(), alone.tokens.begin(), alone.tokens.end());
    fresh.push_back(std::move(journey));
  }
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Journey> journeys = fresh;
    RandomScheduler(*engine, seed).Run(journeys);
    for (size_t i = 0; i < journeys.size(); ++i) EXPECT_EQ(journeys[i].tokens, expected[i]);
  }
}

// What the plans so far have left in four slots of max_context 1024.
struct SlotState {
  bool in_use = false;
  int num_left = 0;  // known tokens to be prefilled
};
using SlotStates = std::array<SlotState, 4>;

proto::StepPlan ValidPlan(Random& random, SlotStates& states) {
  proto::StepPlan plan;
  plan.mutable_decode();
  for (int slot = 0; slot < 4; ++slot) {
    SlotState& state = states[static_cast<size_t>(slot)];
    if (state.in_use && state.num_left == 0) {
      if (Pick(random, 0, 5) == 0) {
        plan.add_release(static_cast<uint32_t>(slot));
        state.in_use = false;
      } else if (Pick(random, 0, 3) > 0) {
        plan.mutable_decode()->add_slots(static_cast<uint32_t>(slot));
      }
    }
    if (!state.in_use && Pick(random, 0, 3) == 0) {
      state = {.in_use = true, .num_left = Pick(random, 1, 40)};
      proto::Admit& admit = AddAdmit(plan, slot, ArbitraryPrompt(state.num_left, 5));
      if (Pick(random, 0, 3) == 0) admit.set_prompt_logprobs(3);
      AddBlocks(plan, slot, 0, Blocks(static_cast<uint32_t>(slot), 2, 4),
                Blocks(static_cast<uint32_t>(slot), 2, 4));
    }
    if (state.num_left > 0 && Pick(random, 0, 1) == 0) {
      const int count = Pick(random, 1, std::min(state.num_left, 14));
      AddPrefill(plan, slot, count);
      state.num_left -= count;
    }
  }
  return plan;
}

// Sets one field to a value near or beyond its limits, which may still be valid.
void Spoil(proto::StepPlan& plan, Random& random) {
  const auto any = [&random] { return static_cast<uint32_t>(Pick(random, -1, 5)); };
  proto::Admit* admit = plan.admit_size() > 0 ? plan.mutable_admit(0) : plan.add_admit();
  proto::PrefillChunk* chunk = plan.prefill_size() > 0 ? plan.mutable_prefill(0) : nullptr;
  switch (Pick(random, 0, 9)) {
    case 0:
      return plan.add_release(any());
    case 1:
      return admit->set_slot(any());
    case 2:
      return admit->add_tokens(Pick(random, 0, 1) == 0 ? -1 : 4096);
    case 3:
      return admit->set_num_prompt_tokens(any());
    case 4:
      return admit->set_num_cached_tokens(Pick(random, 0, 1) == 0 ? 64u : any());
    case 5:
      return plan.mutable_decode()->add_slots(any());
    case 6:
      return AddPrefill(plan, static_cast<int>(any()), Pick(random, -1, 60));
    case 7:
      return AddBlocks(plan, static_cast<int>(any()), Pick(random, -1, 16), {any()}, {any()});
    case 8:
      return plan.mutable_grow()->Clear();
    default:
      if (chunk != nullptr) chunk->set_num_tokens(any());
  }
}

TEST(RandomPlansTest, AnyPlanIsRunOrRefused) {
  const auto engine = MakeTestEngine(
      {.dtype = kernels::DType::kBF16,
       .engine = {
           .num_slots = 4, .max_step_tokens = 60, .num_full_blocks = 8, .num_sliding_blocks = 8}});
  Random random(7);
  SlotStates states;
  int num_run = 0, num_refused = 0;
  uint64_t step = 0;
  for (int i = 0; i < 3000; ++i) {
    proto::StepPlan plan = ValidPlan(random, states);
    const bool spoiled = Pick(random, 0, 9) == 0;
    if (spoiled) Spoil(plan, random);
    plan.set_step(++step);
    const auto result = engine->Step(plan);
    if (result.ok() && !spoiled) {
      EXPECT_EQ(result->step(), step);
      EXPECT_LE(result->num_tokens(), 60u);
      std::set<uint32_t> slots;
      for (const auto& slot : result->slots()) EXPECT_TRUE(slots.insert(slot.slot()).second);
      num_run += result->num_tokens() > 0 ? 1 : 0;
      continue;
    }
    if (!result.ok()) {
      EXPECT_TRUE(spoiled) << result.status();
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
      ++num_refused;
    }
    // After a spoiled plan nobody knows the slots' state, accepted or not.
    engine->Reset();
    states = {};
    step = 0;
  }
  EXPECT_GT(num_run, 1000);
  EXPECT_GT(num_refused, 100);
}

}  // namespace
}  // namespace weightless::worker
