#include "tests/worker/test_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "common/check.h"
#include "model/checkpoint.h"

namespace weightless::worker {

std::unique_ptr<Engine> MakeTestEngine(const TestEngineOptions& options) {
  auto checkpoint = model::Checkpoint::Open(std::string(WEIGHTLESS_SOURCE_DIR "/") + options.model);
  CHECK(checkpoint.ok());
  std::unique_ptr<kernels::Backend> backend =
      options.family == kernels::KernelFamily::kReference
          ? kernels::MakeReferenceBackend(options.dtype)
          : kernels::MakeCpuBackend(
                {.activation_type = options.dtype, .family = options.family, .num_threads = 2});
  CHECK(backend != nullptr);
  auto engine = Engine::Create(**checkpoint, std::move(backend), options.engine);
  if (!engine.ok()) ADD_FAILURE() << engine.status();
  CHECK(engine.ok());
  return *std::move(engine);
}

Recorder::Recorder(Engine& engine) : engine_(engine) {
  engine_.Reset();
  engine_.set_logits_observer([this](int slot, int, std::span<const float> logits) {
    logits_[slot].assign(logits.begin(), logits.end());
    return absl::OkStatus();
  });
}

proto::StepResult Recorder::Run(proto::StepPlan plan) {
  auto result = TryRun(std::move(plan));
  if (!result.ok()) ADD_FAILURE() << result.status();
  CHECK(result.ok());
  return *std::move(result);
}

absl::StatusOr<proto::StepResult> Recorder::TryRun(proto::StepPlan plan) {
  plan.set_step(++step_);
  logits_.clear();
  auto result = engine_.Step(plan);
  if (!result.ok()) return result;
  for (const proto::SlotResult& slot_result : result->slots()) {
    if (!slot_result.has_token()) continue;
    const int slot = static_cast<int>(slot_result.slot());
    generated_[slot].tokens.push_back(slot_result.token());
    generated_[slot].logits.push_back(std::move(logits_[slot]));
    ended_[slot] = slot_result.ended();
  }
  return result;
}

proto::Admit& AddAdmit(proto::StepPlan& plan, int slot, const std::vector<int32_t>& tokens) {
  proto::Admit& admit = *plan.add_admit();
  admit.set_slot(static_cast<uint32_t>(slot));
  admit.mutable_tokens()->Add(tokens.begin(), tokens.end());
  admit.set_num_prompt_tokens(static_cast<uint32_t>(tokens.size()));
  return admit;
}

void AddBlocks(proto::StepPlan& plan, int slot, int first, const std::vector<uint32_t>& full,
               const std::vector<uint32_t>& sliding) {
  for (const auto& [pool, blocks] :
       {std::pair(proto::POOL_FULL, full), std::pair(proto::POOL_SLIDING, sliding)}) {
    if (blocks.empty()) continue;
    proto::Grow& grow = *plan.add_grow();
    grow.set_slot(static_cast<uint32_t>(slot));
    grow.set_pool(pool);
    grow.set_first(static_cast<uint32_t>(first));
    grow.mutable_blocks()->Add(blocks.begin(), blocks.end());
  }
}

void AddPrefill(proto::StepPlan& plan, int slot, int num_tokens) {
  proto::PrefillChunk& chunk = *plan.add_prefill();
  chunk.set_slot(static_cast<uint32_t>(slot));
  chunk.set_num_tokens(static_cast<uint32_t>(num_tokens));
}

void SetDecode(proto::StepPlan& plan, const std::vector<int>& slots) {
  plan.mutable_decode()->clear_slots();
  for (const int slot : slots) plan.mutable_decode()->add_slots(static_cast<uint32_t>(slot));
}

std::vector<uint32_t> Blocks(uint32_t first, uint32_t count, int stride) {
  std::vector<uint32_t> blocks;
  for (uint32_t i = 0; i < count; ++i) {
    blocks.push_back(static_cast<uint32_t>(static_cast<int>(first) + static_cast<int>(i) * stride));
  }
  return blocks;
}

Generated GenerateAlone(Engine& engine, const std::vector<int32_t>& prompt, int num_tokens,
                        const proto::Sampling& sampling) {
  Recorder recorder(engine);
  const size_t max_context = engine.description().geometry().max_context();
  const auto num_blocks = static_cast<uint32_t>(
      (std::min(prompt.size() + static_cast<size_t>(num_tokens), max_context) + 63) / 64);
  proto::StepPlan plan;
  *AddAdmit(plan, 0, prompt).mutable_sampling() = sampling;
  AddBlocks(plan, 0, 0, Blocks(0, num_blocks), Blocks(0, num_blocks));
  AddPrefill(plan, 0, static_cast<int>(prompt.size()));
  recorder.Run(plan);
  plan.Clear();
  SetDecode(plan, {0});
  for (int i = 1; i < num_tokens && !recorder.ended(0); ++i) {
    recorder.Run(plan);
    plan.Clear();
  }
  return recorder.slot(0);
}

std::vector<int32_t> ArbitraryPrompt(int count, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  std::vector<int32_t> tokens = {2};
  while (static_cast<int>(tokens.size()) < count) {
    tokens.push_back(static_cast<int32_t>(300 + random() % 3700));
  }
  return tokens;
}

}  // namespace weightless::worker
