// Executes step plans on one device: sequence slots, block tables, one forward pass and one
// sampling per step. Takes no scheduling decision. (proto/worker.proto is the contract; this is its
// body.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "proto/worker.pb.h"
#include "worker/model.h"
#include "worker/sampler.h"
#include "worker/slots.h"
#include "worker/step_batch.h"
#include "worker/weights.h"

namespace weightless::worker {

struct EngineOptions {
  int max_length = 0;         // tokens per sequence; 0: what the model allows
  int num_slots = 64;         // sequences at once
  int max_step_tokens = 512;  // tokens per step, prefill and decode together; >= num_slots
  // KV memory: a share of the device's memory that weights and activations leave, or exact block
  // counts. 0: 0.9, on a CPU, which is shared with everything else, 0.3.
  double memory_utilization = 0;
  int64_t num_full_blocks = 0;     // > 0: exactly so many
  int64_t num_sliding_blocks = 0;  // > 0: exactly so many
  std::string model_name = {};     // empty: the checkpoint's
};

// Owned by one thread, except description().
class Engine {
 public:
  // Loads the weights; the checkpoint is not needed afterwards. kInvalidArgument names an option
  // that is out of range; kResourceExhausted when weights or the KV blocks of one whole sequence do
  // not fit, naming need and limit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const model::Checkpoint& checkpoint,
                                                        std::unique_ptr<kernels::Backend> backend,
                                                        const EngineOptions& options,
                                                        const LoadProgress& progress = {});

  // Constant after Create.
  const proto::Description& description() const { return description_; }
  // The same with the memory as it is now. Any thread may call it.
  proto::Description DescribeNow() const;

  // Applies the plan and runs the step. kInvalidArgument names the field, value and limit of a plan
  // that breaks the contract; the engine must then be Reset. A NaN in the logits CHECK-fails.
  absl::StatusOr<proto::StepResult> Step(const proto::StepPlan& plan);

  // Frees every slot; the next plan is step 1 again.
  void Reset() { slots_.Reset(); }

  // Of the last step.
  int num_step_sequences() const { return num_step_sequences_; }
  int num_slots_used() const { return slots_.num_used(); }
  bool step_continues() const { return slots_.step_continues(); }
  // Now. Any thread may ask.
  size_t workspace_bytes() const { return backend_->workspace_bytes(); }
  size_t allocated_bytes() const { return backend_->memory_allocated_bytes(); }

  // One prefill and one decode on a scratch sequence: kInternal unless all logits are finite.
  // Leaves the engine as after Reset.
  absl::Status WarmUp();

  // From now on every row of logits is shown to `observer` before sampling; empty: none.
  void set_logits_observer(LogitsObserver observer) { sampler_.set_observer(std::move(observer)); }

 private:
  Engine(std::unique_ptr<kernels::Backend> backend, Model model, StepBatch batch,
         const PlanLimits& limits, proto::Description description);

  absl::Status RunWarmUpSteps();

  const std::unique_ptr<kernels::Backend> backend_;
  const proto::Description description_;
  Slots slots_;
  StepBatch batch_;
  Model model_;
  Sampler sampler_;
  int num_step_sequences_ = 0;
};

}  // namespace weightless::worker
