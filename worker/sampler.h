// From the rows of a forward pass to a step's results: which rows need logits, in which groups, and
// what is reported of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/worker.pb.h"
#include "worker/model.h"
#include "worker/slots.h"
#include "worker/step_batch.h"

namespace weightless::worker {

// Sees the raw logits after the token at `position` of a slot, before anything is drawn; an error
// ends the step. For tests, evaluation and warm-up.
using LogitsObserver =
    std::function<absl::Status(int slot, int position, std::span<const float> logits)>;

// A row whose logits are wanted, as it was when its step was launched.
struct HeadRow {
  int slot = 0;
  uint64_t sequence_id = 0;
  int position = 0;            // of the token the row was computed from
  bool draw = false;           // else report on the prompt token that follows
  bool fills_context = false;  // the token drawn is the last that has room
  bool dropped = false;        // the sequence turned out to have ended in an earlier step
};

// What is left to do of a launched step once the backend has computed it.
struct LaunchedStep {
  uint64_t step = 0;
  int num_tokens = 0;
  int num_sequences = 0;
  bool continues = false;                           // Slots::step_continues
  std::vector<HeadRow> head = {};                   // as in StepInputs: draws, then reports
  std::vector<kernels::SampledToken> sampled = {};  // of head; there when the step is collected
};

// Owned by the engine thread. Model, slots and backend outlive it.
class Sampler {
 public:
  // The memory it samples in. kResourceExhausted naming what did not fit.
  struct Memory {
    static absl::StatusOr<Memory> Create(const PlanLimits& limits, kernels::Backend& backend);
    size_t size_bytes() const { return states->size_bytes() + sampled->size_bytes(); }

    std::unique_ptr<kernels::SlotStates> states;
    std::unique_ptr<kernels::Buffer> sampled;  // kernels::SampledToken [max_step_tokens]
  };
  Sampler(Memory memory, Model& model, Slots& slots, kernels::Backend& backend);

  // Gives the slots of the last plan's admissions their sampling state.
  void AdmitSequences();

  // The rows of the step whose logits are wanted: the last one of every run that computes its last
  // known token, and with prompt logprobs each row whose next prompt token is known. Fills
  // step.head. Valid until the next call.
  HeadRows SelectRows(std::span<const Run> runs, LaunchedStep& step);

  // Puts the tokens drawn last into the rows of decodes; before Forward.
  void FeedTokens(const StepInputs& in);
  // After Forward: draws into the slots' states. Fails only by the observer, which sees `step`.
  absl::Status Sample(const StepInputs& in, const LaunchedStep& step);
  // After Sample: has step.sampled brought to the host.
  void DownloadSampled(LaunchedStep& step);

  // The step has been collected. `later` are the steps launched after it, whose rows of a sequence
  // that ended here are dropped.
  proto::StepResult Report(const LaunchedStep& step, std::span<LaunchedStep> later);

  void set_observer(LogitsObserver observer) { observer_ = std::move(observer); }
  bool has_observer() const { return observer_ != nullptr; }

 private:
  absl::Status Observe(const LaunchedStep& step, int first, const kernels::TensorView& logits);
  void End(const HeadRow& row, std::span<LaunchedStep> later);

  Memory memory_;
  Model& model_;
  Slots& slots_;
  kernels::Backend& backend_;
  LogitsObserver observer_;
  // Of HeadRows.
  std::vector<int32_t> rows_;
  std::vector<int32_t> row_slots_;
  std::vector<int32_t> targets_;
};

}  // namespace weightless::worker
