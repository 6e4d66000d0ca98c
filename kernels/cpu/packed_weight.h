// Weights as every CPU family multiplies by them. 16 rows of W form a panel; a step is 64 bytes,
// one 4-byte cell for each row of the panel:
//
//   bfloat16:  step s holds W[row, 2s] and W[row, 2s + 1]; k is padded with zeros to 32
//   float32:   step s holds W[row, s]
//
//   panel 0: | step 0: row 0 | row 1 | ... | row 15 | step 1: row 0 | ...
//
// So a vector of 16 lanes is 16 output rows, and 16 bfloat16 steps are one AMX tile. Each stacked
// part starts a new panel; rows that only fill up a part's last panel are zeros.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_memory.h"

namespace weightless::kernels {

inline constexpr int kPanelRows = 16;
inline constexpr int64_t kStepCells = 16;  // 4-byte cells in one step

// k as the activations of a product must be padded.
constexpr int64_t PaddedK(int64_t k, DType type) {
  return type == DType::kBF16 ? (k + 31) / 32 * 32 : k;
}
constexpr int64_t StepsOf(int64_t padded_k, DType type) {
  return type == DType::kBF16 ? padded_k / 2 : padded_k;
}

class PackedWeight final : public LinearWeight {
 public:
  // Null when the memory does not suffice. `memory` outlives the weight.
  static std::unique_ptr<PackedWeight> Pack(std::span<const DenseRows> stacked, DType type,
                                            ThreadPool& pool, HostMemory& memory);

  DType type() const { return type_; }
  int64_t padded_k() const { return PaddedK(k_, type_); }
  int64_t steps() const { return StepsOf(padded_k(), type_); }
  int64_t num_panels() const { return static_cast<int64_t>(panel_first_row_.size()); }
  const uint32_t* panel(int64_t i) const { return cells_ + i * steps() * kStepCells; }
  // Row of W in lane 0 of panel i, and how many lanes hold rows.
  int64_t first_row(int64_t i) const { return panel_first_row_[static_cast<size_t>(i)]; }
  int64_t num_rows(int64_t i) const;
  // The cell of `row` in step 0; its others follow every kStepCells.
  const uint32_t* row_cells(int64_t row) const;
  // Whether panel i and panel i + num_panels() / 2 hold rows j and j + n / 2 in each lane.
  bool halves_match() const;

 private:
  struct Part {
    int64_t first_row = 0;
    int64_t num_rows = 0;
    int64_t first_panel = 0;
  };

  DType type_ = DType::kBF16;
  std::unique_ptr<Buffer> buffer_;
  uint32_t* cells_ = nullptr;
  std::vector<Part> parts_;
  std::vector<int64_t> panel_first_row_;
};

}  // namespace weightless::kernels
