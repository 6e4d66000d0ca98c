// A KV block (64 positions of one layer) as panels of kernels/cpu/packed_weight.h, so that scores
// and the weighted sum of values are plain products. For each kv head K, then V:
//
//   K: 4 panels of 16 keys; steps run over the head's dimensions (bfloat16: pairs, padded to 32)
//   V: head_dim / 16 panels of 16 dimensions; steps run over the 64 keys (bfloat16: pairs)
//
// A key never written is zero in V: its weight is zero, and zero times stale memory might be a NaN.
// The token that opens a block therefore clears what follows it.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/packed_weight.h"

namespace weightless::kernels {

struct KvLayout {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  DType type = DType::kBF16;

  constexpr int64_t padded_dim() const { return PaddedK(head_dim, type); }
  constexpr int64_t k_steps() const { return StepsOf(padded_dim(), type); }
  constexpr int64_t v_steps() const { return StepsOf(kBlockSize, type); }
  constexpr int64_t v_panels() const { return head_dim / kPanelRows; }
  constexpr int64_t k_cells() const { return kBlockSize * k_steps(); }
  constexpr int64_t v_cells() const { return head_dim * v_steps(); }
  constexpr int64_t block_cells() const { return num_kv_heads * (k_cells() + v_cells()); }

  uint32_t* k_panel(void* layer, int64_t block, int64_t kv_head, int64_t panel) const {
    return static_cast<uint32_t*>(layer) + block * block_cells() +
           kv_head * (k_cells() + v_cells()) + panel * k_steps() * kStepCells;
  }
  uint32_t* v_panel(void* layer, int64_t block, int64_t kv_head, int64_t panel) const {
    return k_panel(layer, block, kv_head, 0) + k_cells() + panel * v_steps() * kStepCells;
  }
};

}  // namespace weightless::kernels
