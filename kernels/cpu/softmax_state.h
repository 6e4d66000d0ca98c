// The running softmax of the query heads of a tile, and how two of them are merged.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/vector_math.h"

namespace weightless::kernels {
namespace {

inline constexpr float kNothingSeen = -HUGE_VALF;

// Softmax so far of each query head of a tile; values are not yet divided by the sum.
struct RunningState {
  float* max;
  float* sum;
  float* values;  // [heads, head_dim]
  int64_t heads;
  int64_t head_dim;

  RunningState(float* memory, int64_t num_heads, int64_t dim)
      : max(memory + num_heads * dim),
        sum(max + (num_heads + 15) / 16 * 16),
        values(memory),
        heads(num_heads),
        head_dim(dim) {}

  void Clear() {
    for (int64_t i = 0; i < heads * head_dim; ++i) values[i] = 0;
    for (int64_t h = 0; h < heads; ++h) {
      max[h] = kNothingSeen;
      sum[h] = 0;
    }
  }
};

// e^(old - max), 0 when nothing was seen before.
template <typename Simd>
float Shrink(float old, float max) {
  if (old == max) return 1;
  return old == kNothingSeen ? 0 : Exp1<Simd>(old - max);
}

template <typename Simd>
void ScaleValues(const RunningState& state, int64_t head, float factor) {
  if (factor == 1) return;
  float* values = state.values + head * state.head_dim;
  for (int64_t i = 0; i < state.head_dim; i += 16) {
    Simd::Store(values + i, Simd::Mul(Simd::Load(values + i), Simd::Set1(factor)));
  }
}

// Adds what `chunk` has seen to `total`.
template <typename Simd>
void Merge(const RunningState& chunk, RunningState& total) {
  for (int64_t h = 0; h < total.heads; ++h) {
    if (chunk.max[h] == kNothingSeen) continue;
    const float max = chunk.max[h] > total.max[h] ? chunk.max[h] : total.max[h];
    const float keep = Shrink<Simd>(total.max[h], max);
    const float add = Shrink<Simd>(chunk.max[h], max);
    total.max[h] = max;
    total.sum[h] = total.sum[h] * keep + chunk.sum[h] * add;
    float* values = total.values + h * total.head_dim;
    const float* more = chunk.values + h * total.head_dim;
    for (int64_t i = 0; i < total.head_dim; i += 16) {
      const auto kept = Simd::Mul(Simd::Load(values + i), Simd::Set1(keep));
      Simd::Store(values + i, Simd::MulAdd(Simd::Load(more + i), Simd::Set1(add), kept));
    }
  }
}

}  // namespace
}  // namespace weightless::kernels
