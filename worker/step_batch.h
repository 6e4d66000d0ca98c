// A step's runs as the arrays of the forward pass, staged on the host and copied to the backend in
// one piece, and the block tables of all slots, which stay there.
//
// What Backend::RunDecodes may rely on: the block tables never move, and in a step of decodes alone
// no array does, nor does a shape depend on anything but the padded number of decodes. In other
// steps the arrays lie close together, at addresses of their own.
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

// The rows of a step whose logits are wanted, as in StepInputs.
struct HeadRows {
  std::span<const int32_t> rows;
  std::span<const int32_t> slots;
  std::span<const int32_t> targets;  // of the last rows
};

// Owned by the engine thread. The backend outlives it.
class StepBatch {
 public:
  static absl::StatusOr<StepBatch> Create(const PlanLimits& limits, kernels::Backend& backend);

  // Brings the block tables up to date with the last plan.
  void UpdateTables(const Slots& slots);

  // The arrays of `runs`, decodes first, one after the other, and of `head`, at most
  // max_step_tokens rows of the step. Valid until the next call.
  StepInputs Build(std::span<const Run> runs, const Slots& slots, const HeadRows& head);

  size_t size_bytes() const { return device_->size_bytes() + tables_->size_bytes(); }

 private:
  StepBatch(const PlanLimits& limits, size_t num_values, std::unique_ptr<kernels::Buffer> device,
            std::unique_ptr<kernels::Buffer> tables, kernels::Backend& backend);

  struct Arrays;

  Arrays TakeArrays(size_t token_room, const HeadRows& head, size_t head_room);
  void FillRun(const Run& run, size_t run_idx, size_t first_row, const Slots& slots,
               const Arrays& arrays) const;
  size_t PadDecodes(size_t num_decodes, const Arrays& arrays) const;
  std::span<int32_t> Take(size_t num_values);
  int32_t* OnDevice(std::span<const int32_t> taken) const;
  int32_t* Table(bool sliding, int slot) const;

  size_t num_slots_;
  size_t table_width_;  // entries of one slot's table
  std::vector<int32_t> host_;
  std::unique_ptr<kernels::Buffer> device_;  // as large as host_, same layout
  // Two of [num_slots, max_blocks_per_seq]: full, sliding.
  std::unique_ptr<kernels::Buffer> tables_;
  kernels::Backend* backend_;
  size_t num_taken_ = 0;
};

}  // namespace weightless::worker
