// Engines on the tiny model, and plans by hand.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/engine.h"

namespace weightless::worker {

struct TestEngineOptions {
  kernels::KernelFamily family = kernels::KernelFamily::kAuto;
  kernels::DType dtype = kernels::DType::kF32;
  EngineOptions engine = {.num_slots = 8, .num_full_blocks = 64, .num_sliding_blocks = 64};
  std::string model = "models/tiny-gemma3";
};

// Aborts the test program when the model does not load.
std::unique_ptr<Engine> MakeTestEngine(const TestEngineOptions& options = {});

// What one sequence gave: tokens drawn, and the raw logits each was drawn from.
struct Generated {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;

  bool operator==(const Generated&) const = default;
};

// Collects the output of every slot, by slot, as steps are run.
class Recorder {
 public:
  // Observes the engine's logits until destroyed.
  explicit Recorder(Engine& engine);
  ~Recorder() { engine_.set_logits_observer({}); }

  // Runs the plan with the next step number; it must be accepted.
  proto::StepResult Run(proto::StepPlan plan);
  // Likewise, and returns what the engine said.
  absl::StatusOr<proto::StepResult> TryRun(proto::StepPlan plan);

  Generated& slot(int slot) { return generated_[slot]; }
  // Whether the slot's last result said so.
  bool ended(int slot) { return ended_[slot]; }

 private:
  Engine& engine_;
  uint64_t step_ = 0;
  std::map<int, std::vector<float>> logits_;  // of this step, by slot; the last row observed
  std::map<int, Generated> generated_;
  std::map<int, bool> ended_;
};

// Parts of plans.
proto::Admit& AddAdmit(proto::StepPlan& plan, int slot, const std::vector<int32_t>& tokens);
void AddBlocks(proto::StepPlan& plan, int slot, int first, const std::vector<uint32_t>& full,
               const std::vector<uint32_t>& sliding);
void AddPrefill(proto::StepPlan& plan, int slot, int num_tokens);
void SetDecode(proto::StepPlan& plan, const std::vector<int>& slots);

// count ids: first, first + stride, ...
std::vector<uint32_t> Blocks(uint32_t first, uint32_t count, int stride = 1);

// One sequence in slot 0, whole prompt in one step, greedy unless sampling says otherwise.
Generated GenerateAlone(Engine& engine, const std::vector<int32_t>& prompt, int num_tokens,
                        const proto::Sampling& sampling = {});

// A fixed, arbitrary prompt: <bos> and count - 1 ordinary tokens.
std::vector<int32_t> ArbitraryPrompt(int count, uint32_t seed);

}  // namespace weightless::worker
