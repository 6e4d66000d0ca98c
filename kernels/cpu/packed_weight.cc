#include "kernels/cpu/packed_weight.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/check.h"
#include "kernels/host_memory.h"

namespace weightless::kernels {
namespace {

// Row `values` into lane `lane` of a panel.
void PackRow(const float* values, int64_t k, DType type, int64_t lane, uint32_t* panel) {
  uint32_t* cell = panel + lane;
  if (type == DType::kF32) {
    for (int64_t i = 0; i < k; ++i) cell[i * kStepCells] = std::bit_cast<uint32_t>(values[i]);
    return;
  }
  for (int64_t i = 0; i < k; i += 2) {
    const uint32_t low = ToBF16(values[i]).bits;
    const uint32_t high = i + 1 < k ? ToBF16(values[i + 1]).bits : 0u;
    cell[i / 2 * kStepCells] = low | high << 16;
  }
}

}  // namespace

std::unique_ptr<PackedWeight> PackedWeight::Pack(std::span<const DenseRows> stacked, DType type,
                                                 ThreadPool& pool, HostMemory& memory) {
  CHECK(!stacked.empty());
  auto w = std::make_unique<PackedWeight>();
  w->type_ = type;
  w->k_ = stacked.front().k;
  CHECK(w->k_ > 0);
  for (const DenseRows& part : stacked) {
    CHECK(part.k == w->k_ && part.n > 0);
    w->parts_.push_back({w->n_, part.n, w->num_panels()});
    for (int64_t row = 0; row < part.n; row += kPanelRows) {
      w->panel_first_row_.push_back(w->n_ + row);
    }
    w->n_ += part.n;
  }
  const int64_t panel_cells = w->steps() * kStepCells;
  w->size_bytes_ = static_cast<size_t>(w->num_panels() * panel_cells) * sizeof(uint32_t);
  w->buffer_ = memory.Allocate(w->size_bytes_);
  if (w->buffer_ == nullptr) return nullptr;
  w->cells_ = static_cast<uint32_t*>(w->buffer_->data());
  for (size_t p = 0; p < stacked.size(); ++p) {
    const DenseRows& source = stacked[p];
    const Part& part = w->parts_[p];
    const int64_t panels = (part.num_rows + kPanelRows - 1) / kPanelRows;
    pool.ForRange(panels, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> rows(static_cast<size_t>(kPanelRows * source.k));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i * kPanelRows;
        const int64_t count = std::min<int64_t>(kPanelRows, part.num_rows - first);
        source.read(first, count, rows.data());
        uint32_t* panel = w->cells_ + (part.first_panel + i) * panel_cells;
        for (int64_t lane = 0; lane < count; ++lane) {
          PackRow(rows.data() + lane * source.k, source.k, type, lane, panel);
        }
      }
    });
  }
  return w;
}

int64_t PackedWeight::num_rows(int64_t i) const {
  const int64_t next = i + 1 < num_panels() ? first_row(i + 1) : n_;
  return next - first_row(i);
}

const uint32_t* PackedWeight::row_cells(int64_t row) const {
  CHECK(row >= 0 && row < n_);
  const Part* part = parts_.data();
  while (row >= part->first_row + part->num_rows) ++part;
  const int64_t row_in_part = row - part->first_row;
  return panel(part->first_panel + row_in_part / kPanelRows) + row_in_part % kPanelRows;
}

bool PackedWeight::halves_match() const {
  if (parts_.size() == 2) return parts_[0].num_rows == parts_[1].num_rows;
  return n_ % 2 == 0 && n_ / 2 % kPanelRows == 0 && num_panels() * kPanelRows == n_;
}

}  // namespace weightless::kernels
