// The ops of backend.h in plain loops on host memory: sums in float64, one result rounding to
// float32 and one more where the contract rounds to the activation type. The shapes have been
// checked. KV blocks are [K | V], each [kv_head][token][head_dim] of the activation type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/host_memory.h"

namespace weightless::kernels::reference {

// Row-major float32 copy, in bfloat16 mode of the rounded values.
class DenseWeight final : public LinearWeight {
 public:
  // Null when the memory does not suffice. `memory` outlives the weight.
  static std::unique_ptr<DenseWeight> Pack(std::span<const DenseRows> stacked, DType type,
                                           HostMemory& memory);
  const float* row(int64_t i) const { return values_ + i * k_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  const float* values_ = nullptr;
};

float Load(const TensorView& t, int64_t index);
void Store(const TensorView& t, int64_t index, float value);
TensorView KeyRow(const KvLayer& layer, DType type, int64_t slot, int kv_head);
TensorView ValueRow(const KvLayer& layer, DType type, int64_t slot, int kv_head);

void Embed(const int32_t* ids, const DenseWeight& table, float scale, TensorView x);
void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out);
void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x);
void Linear(TensorView x, const DenseWeight& w, TensorView out);
void LinearGeglu(TensorView x, const DenseWeight& w, TensorView out);
void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in, const AttentionShape& shape,
                     const PoolBatch& batch, const KvLayer& layer, TensorView q_out);
void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
               const KvLayer& layer, TensorView out);

}  // namespace weightless::kernels::reference
