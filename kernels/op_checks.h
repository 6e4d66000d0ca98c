// The shape and type rules of backend.h as CHECKs, shared by all backends. `act` is the activation
// type.
#pragma once

#include "common/check.h"
#include "kernels/backend.h"

namespace weightless::kernels {

inline void CheckMatrix(const TensorView& t, DType type, int64_t cols) {
  CHECK(t.type == type && t.cols == cols && t.rows >= 0);
  CHECK(t.data != nullptr || t.rows == 0);
}

inline void CheckEmbed(const LinearWeight& table, const TensorView& x) {
  CheckMatrix(x, DType::kF32, table.k());
}

inline void CheckNorm(const TensorView& x, const TensorView& weight, const TensorView& out,
                      DType act) {
  CheckMatrix(x, DType::kF32, x.cols);
  CheckMatrix(weight, DType::kF32, x.cols);
  CHECK(weight.rows == 1 && x.cols > 0);
  CHECK(out.type == act || out.type == DType::kF32);
  CHECK(out.rows == x.rows && out.cols == x.cols);
}

inline void CheckLinear(const TensorView& x, const LinearWeight& w, const TensorView& out,
                        DType act) {
  CheckMatrix(x, act, w.k());
  CheckMatrix(out, DType::kF32, w.n());
  CHECK(out.rows == x.rows);
}

inline void CheckLinearGeglu(const TensorView& x, const LinearWeight& w, const TensorView& out,
                             DType act) {
  CHECK(w.n() % 2 == 0);
  CheckMatrix(x, act, w.k());
  CheckMatrix(out, act, w.n() / 2);
  CHECK(out.rows == x.rows);
}

inline void CheckShape(const AttentionShape& s, const PoolBatch& batch, const KvLayer& layer) {
  CHECK(s.num_kv_heads > 0 && s.num_heads > 0 && s.num_heads % s.num_kv_heads == 0);
  CHECK(s.head_dim > 0 && s.head_dim % 16 == 0 && s.window >= 0);
  CHECK(layer.num_kv_heads == s.num_kv_heads && layer.head_dim == s.head_dim);
  CHECK(batch.num_tokens >= 0 && batch.num_seqs >= 0);
}

inline void CheckNormRope(const TensorView& qkv, const NormRopeInputs& in, const AttentionShape& s,
                          const PoolBatch& batch, const KvLayer& layer, const TensorView& q_out,
                          DType act) {
  CheckShape(s, batch, layer);
  CheckMatrix(qkv, DType::kF32, int64_t{s.num_heads + 2 * s.num_kv_heads} * s.head_dim);
  CheckMatrix(q_out, act, int64_t{s.num_heads} * s.head_dim);
  CheckMatrix(in.q_norm, DType::kF32, s.head_dim);
  CheckMatrix(in.k_norm, DType::kF32, s.head_dim);
  CheckMatrix(in.rope.cos, DType::kF32, s.head_dim / 2);
  CheckMatrix(in.rope.sin, DType::kF32, s.head_dim / 2);
  CHECK(in.rope.cos.rows == in.rope.sin.rows);
  CHECK(qkv.rows == batch.num_tokens && q_out.rows == batch.num_tokens);
}

inline void CheckGatherRows(const TensorView& x, const TensorView& out) {
  CheckMatrix(x, DType::kF32, x.cols);
  CheckMatrix(out, DType::kF32, x.cols);
}

inline void CheckAttention(const TensorView& q, const AttentionShape& s, const PoolBatch& batch,
                           const KvLayer& layer, const TensorView& out, DType act) {
  CheckShape(s, batch, layer);
  CheckMatrix(q, act, int64_t{s.num_heads} * s.head_dim);
  CheckMatrix(out, act, int64_t{s.num_heads} * s.head_dim);
  CHECK(q.rows == batch.num_tokens && out.rows == batch.num_tokens);
}

}  // namespace weightless::kernels
