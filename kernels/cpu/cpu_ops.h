// The ops of one kernel family on parts of their work; kernels/cpu/backend.cc cuts the work and
// spreads the parts over threads. Calls on different parts may run at the same time. Shapes have
// been checked.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/packed_weight.h"

namespace weightless::kernels {

// Activations as engines read them: rows of padded_k() elements, bfloat16 or float32.
struct PreparedRows {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  int64_t rows = 0;
};

struct AttentionCall {
  TensorView q;
  TensorView out;
  AttentionShape shape;
  PoolBatch batch;
  KvLayout layout;
  KvLayer layer;
  float* partials = nullptr;  // [num_partials, PartialFloats(shape)]
};

class CpuOps {
 public:
  virtual ~CpuOps() = default;

  virtual const char* name() const = 0;
  virtual DType activation_type() const = 0;

  virtual void RmsNorm(const TensorView& x, const TensorView& weight, float eps,
                       const TensorView& out, int64_t begin, int64_t end) const = 0;
  virtual void RmsNormAdd(const TensorView& y, const TensorView& weight, float eps,
                          const TensorView& x, int64_t begin, int64_t end) const = 0;
  virtual void NormRopeStoreKv(const TensorView& qkv, const NormRopeInputs& in,
                               const AttentionShape& shape, const PoolBatch& batch,
                               const KvLayout& layout, const KvLayer& layer,
                               const TensorView& q_out, int64_t begin, int64_t end) const = 0;

  // Whether x [T, k] can be read as it is; otherwise Prepare copies rows [begin, end) to `to`,
  // [T, padded k] of at most 4 bytes each.
  virtual bool IsPrepared(int64_t k) const = 0;
  virtual void Prepare(const TensorView& x, void* to, int64_t begin, int64_t end) const = 0;

  // Columns of one group of panels (there are NumGroups) for rows [first_row, first_row + rows).
  virtual void Linear(const PreparedRows& x, const PackedWeight& w, float* out, int64_t group,
                      int64_t first_row, int64_t rows) const = 0;
  virtual void LinearGeglu(const PreparedRows& x, const PackedWeight& w, const TensorView& out,
                           int64_t group, int64_t first_row, int64_t rows) const = 0;

  // `scratch` belongs to the calling thread: AttentionScratchFloats(shape).
  virtual void Attention(const AttentionCall& call, const AttentionUnit& unit,
                         float* scratch) const = 0;
  virtual void MergeAttention(const AttentionCall& call, const AttentionPlan::Merge& merge,
                              float* scratch) const = 0;
};

inline constexpr int64_t kGroupPanels = 4;
inline int64_t NumLinearGroups(const PackedWeight& w) {
  return (w.num_panels() + kGroupPanels - 1) / kGroupPanels;
}
// A group is two panels of gates and the two panels of ups they belong to.
inline int64_t NumGegluGroups(const PackedWeight& w) { return (w.num_panels() / 2 + 1) / 2; }

// Query heads in one tile: query rows times the query heads of a kv head.
inline int64_t MaxTileHeads(const AttentionShape& shape, int limit) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  return group > limit ? group : limit;
}
// The running state of `heads` query heads: head_dim values, a maximum and a sum each.
inline int64_t StateFloats(const AttentionShape& shape, int64_t heads) {
  return heads * shape.head_dim + 2 * ((heads + 15) / 16 * 16);
}
inline int64_t PartialFloats(const AttentionShape& shape) {
  return StateFloats(shape, MaxTileHeads(shape, kSplitTileHeads));
}
// q, scores, weights, and two running states.
inline int64_t AttentionScratchFloats(const AttentionShape& shape) {
  const int64_t heads = MaxTileHeads(shape, kTileHeads);
  return heads * (shape.head_dim + 32 + 2 * kBlockSize) + 2 * StateFloats(shape, heads);
}

// Null where this build has no such family. Call only when the processor has it.
const CpuOps* Avx2Ops(DType activation_type);
const CpuOps* Avx512F32Ops();
const CpuOps* Avx512Bf16Ops();
const CpuOps* AmxOps();

}  // namespace weightless::kernels
