// Executes step plans on one device: sequence slots, block tables, one forward pass and one
// sampling per step. Takes no scheduling decision. (proto/worker.proto is the contract; this is its
// body.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "proto/worker.pb.h"

namespace weightless::worker {

struct EngineOptions {
  int max_length = 0;         // tokens per sequence; 0: what the model allows
  int num_slots = 64;         // sequences at once
  int max_step_tokens = 512;  // tokens per step, prefill and decode together; >= num_slots
  // KV memory: a share of the device's memory after weights, or exact block counts (tests).
  double memory_utilization = 0.9;
  int64_t num_full_blocks = 0;     // > 0: exactly so many
  int64_t num_sliding_blocks = 0;  // > 0: exactly so many
  std::string model_name;          // empty: the checkpoint's
};

// 0 .. 1 while weights load.
using LoadProgress = std::function<void(double fraction)>;

// Owned by one thread, except description().
class Engine {
 public:
  // kResourceExhausted when weights or a minimum of KV blocks do not fit, naming need and limit.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const model::Checkpoint& checkpoint,
                                                        std::unique_ptr<kernels::Backend> backend,
                                                        const EngineOptions& options,
                                                        const LoadProgress& progress = {});
  virtual ~Engine() = default;

  // Constant after Create.
  virtual const proto::Description& description() const = 0;

  // Applies the plan and runs the step. kInvalidArgument names the field, value and limit of a plan
  // that breaks the contract; the engine must then be Reset.
  virtual absl::StatusOr<proto::StepResult> Step(const proto::StepPlan& plan) = 0;

  // Frees every slot; the next plan is step 1 again.
  virtual void Reset() = 0;

  // One prefill and one decode on a scratch sequence: kInternal unless all logits are finite.
  // Leaves the engine as after Reset.
  virtual absl::Status WarmUp() = 0;
};

}  // namespace weightless::worker
