// From the rows of a forward pass to a step's results: which rows need logits, in which groups, and
// what is reported of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "proto/worker.pb.h"
#include "worker/model.h"
#include "worker/slots.h"

namespace weightless::worker {

// Sees the raw logits after the token at `position` of a slot, before anything is drawn; an error
// ends the step. For tests, evaluation and warm-up.
using LogitsObserver =
    std::function<absl::Status(int slot, int position, std::span<const float> logits)>;

// Owned by the engine thread. Model, slots and backend outlive it.
class Sampler {
 public:
  Sampler(Model& model, Slots& slots, kernels::Backend& backend);

  // The rows of the step whose logits are wanted: the last one of every run that computes its last
  // known token, and with prompt logprobs each row whose next prompt token is known. Valid until
  // the next call.
  std::span<const int32_t> SelectRows(std::span<const Run> runs);

  // After Forward, with the rows of SelectRows in backend memory: draws, appends the tokens to
  // their sequences and reports into `result`.
  absl::Status Sample(const int32_t* rows, proto::StepResult& result);

  void set_observer(LogitsObserver observer) { observer_ = std::move(observer); }

 private:
  struct Want {
    int slot = 0;
    int position = 0;  // of the token the row was computed from
    bool draw = false;
  };

  kernels::SampleRow RowFor(const Want& want) const;
  absl::Status Observe(std::span<const Want> group, const kernels::TensorView& logits);
  void Report(std::span<const Want> group, proto::StepResult& result);

  Model& model_;
  Slots& slots_;
  kernels::Backend& backend_;
  LogitsObserver observer_;
  std::vector<Want> wants_;
  std::vector<int32_t> rows_;                    // of wants_, in the step
  std::vector<kernels::SampleRow> sample_rows_;  // of one group
  std::vector<kernels::SampledToken> sampled_;   // likewise
};

}  // namespace weightless::worker
