// A step's runs as the arrays of the forward pass, staged on the host and copied to the backend in
// one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model.h"
#include "worker/slots.h"

namespace weightless::worker {

// Owned by the engine thread. The backend outlives it.
class StepBatch {
 public:
  static absl::StatusOr<StepBatch> Create(const PlanLimits& limits, kernels::Backend& backend);

  // The arrays of `runs`, one after the other, and of `head_rows`, at most max_step_tokens rows of
  // the step. Valid until the next call.
  StepInputs Build(std::span<const Run> runs, const Slots& slots,
                   std::span<const int32_t> head_rows);

  size_t size_bytes() const { return device_->size_bytes(); }

 private:
  StepBatch(size_t num_values, std::unique_ptr<kernels::Buffer> device, kernels::Backend& backend)
      : host_(num_values), device_(std::move(device)), backend_(&backend) {}

  std::span<int32_t> Take(size_t num_values);
  const int32_t* OnDevice(std::span<const int32_t> taken) const;

  std::vector<int32_t> host_;
  std::unique_ptr<kernels::Buffer> device_;  // as large as host_, same layout
  kernels::Backend* backend_;
  size_t num_taken_ = 0;
};

}  // namespace weightless::worker
