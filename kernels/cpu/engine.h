// The one product every CPU kernel is made of:
//
//   c[r, 16 p + lane] (+)= sum over s of a[r, s] . panel_p[s, lane]
//
// where a "cell" (r, s) is 4 bytes: two bfloat16 or one float32 (kernels/cpu/packed_weight.h). An
// engine adds up over s in rising order, one accumulator for each element of c, so an element has
// the same bits whatever rows and panels are computed beside it. Linear takes panels of weights;
// attention takes K (16 keys to a panel) and V (16 dimensions to a panel) as panels of the cache.
#pragma once

#include <cstdint>

namespace weightless::kernels {

inline constexpr int kMaxPanels = 4;

// The address `num_cells` after `cells`, to prefetch: it may lie outside of the array, where a
// pointer must not point.
[[gnu::always_inline]] inline uintptr_t AddressAfter(const uint32_t* cells, int64_t num_cells) {
  return reinterpret_cast<uintptr_t>(cells) + static_cast<uintptr_t>(num_cells) * sizeof(uint32_t);
}

struct Product {
  const void* a = nullptr;  // Engine::Element rows
  int64_t lda = 0;          // elements from row to row
  int64_t rows = 0;
  const uint32_t* panels[kMaxPanels] = {};
  int num_panels = 0;
  int64_t steps = 0;  // bfloat16: a multiple of 16
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;  // c += instead of c =
  bool prefetch = false;    // the panels come from memory and are read once
  // With prefetch: the panels that follow these; null where none do.
  const uint32_t* next[kMaxPanels] = {};
};

}  // namespace weightless::kernels
