// Executes step plans on one device: sequence slots, block tables, one forward pass and one
// sampling per step. Takes no scheduling decision. (proto/worker.proto is the contract; this is its
// body.)
//
// A step is launched, then collected. Launch t+1 needs nothing that only Collect t knows: tokens go
// from step to step in the backend, and what a plan may say depends on how many there are. Only
// that a stop token ended a sequence shows at Collect; what later steps drew for it is then
// dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

// What a step gave, and what it was.
struct CollectedStep {
  proto::StepResult result;
  int num_sequences = 0;
  bool continues = false;  // it ran a sequence that the step before it ran, too
};

struct EngineOptions {
  int max_length = 0;         // tokens per sequence; 0: what the model allows
  int num_slots = 64;         // sequences at once
  int max_step_tokens = 512;  // tokens per step, prefill and decode together; >= num_slots
  // KV memory: a share of the device's memory that weights and activations leave, or exact block
  // counts. 0: 0.9, on a CPU, which is shared with everything else, 0.3.
  double memory_utilization = 0;
  int workers_on_device = 1;       // that share the device: each has its part of the memory
  int64_t num_full_blocks = 0;     // > 0: exactly so many
  int64_t num_sliding_blocks = 0;  // > 0: exactly so many
  std::string model_name = {};     // empty: the checkpoint's
  int steps_in_flight = 0;         // launched and not collected; 0: what the backend asks for
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
  // Likewise, with weights of another kind than dense.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const model::Checkpoint& checkpoint,
                                                        WeightKind& kind,
                                                        std::unique_ptr<kernels::Backend> backend,
                                                        const EngineOptions& options,
                                                        const LoadProgress& progress = {});

  // Constant after Create.
  const proto::Description& description() const { return description_; }
  // The same with the memory as it is now. Any thread may call it.
  proto::Description DescribeNow() const;

  // Applies the plan and enqueues its step; with a logits observer, waits for it. Needs can_launch.
  // kInvalidArgument names the field, value and limit of a plan that breaks the contract; what was
  // launched before can still be collected, then the engine must be Reset.
  absl::Status Launch(const proto::StepPlan& plan);
  // Waits for the oldest step in flight, of which there must be one. A NaN in the logits
  // CHECK-fails, here or in Launch.
  CollectedStep Collect();
  // Launch and Collect, with nothing in flight.
  absl::StatusOr<proto::StepResult> Step(const proto::StepPlan& plan);

  int num_in_flight() const { return static_cast<int>(in_flight_.size()); }
  bool can_launch() const { return num_in_flight() < steps_in_flight_; }
  // Whether Collect would return at once.
  bool is_step_done();

  // Waits for the steps in flight, forgets their results and frees every slot; the next plan is
  // step 1 again.
  void Reset();

  int num_slots_used() const { return slots_.num_used(); }
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
         Sampler::Memory sampler_memory, const PlanLimits& limits, const EngineOptions& options,
         proto::Description description);

  absl::Status Compute(const StepInputs& inputs, LaunchedStep& step);
  absl::Status RunWarmUpSteps();

  const std::unique_ptr<kernels::Backend> backend_;
  const proto::Description description_;
  const int steps_in_flight_;
  Slots slots_;
  StepBatch batch_;
  Model model_;
  Sampler sampler_;
  std::vector<LaunchedStep> in_flight_;  // oldest first
};

}  // namespace weightless::worker
