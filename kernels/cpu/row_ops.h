// Norms, RoPE and the writing of K and V, for any Simd and activation type Act.
#pragma once

#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace weightless::kernels {
namespace {

// 1 / sqrt(mean(x^2) + eps), summed in float64 in 16 lanes.
template <typename Simd>
float InverseRms(const float* x, int64_t size, float eps) {
  auto sum = Simd::ZeroD();
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) sum = Simd::AddSquares(sum, Simd::Load(x + i));
  if (i < size) sum = Simd::AddSquares(sum, Simd::LoadFirst(x + i, size - i));
  return static_cast<float>(
      1 / std::sqrt(Simd::Sum(sum) / static_cast<double>(size) + static_cast<double>(eps)));
}

// f(first, count) over [0, size) in vectors of 16 and one of the rest.
template <typename F>
void ForVectors(int64_t size, F&& f) {
  for (int64_t i = 0; i < size; i += 16) f(i, size - i < 16 ? size - i : int64_t{16});
}

template <typename Simd, typename Out>
void NormRow(const float* x, const float* weight, float eps, int64_t size, Out* out) {
  const auto scale = Simd::Set1(InverseRms<Simd>(x, size, eps));
  ForVectors(size, [&](int64_t i, int64_t n) {
    const auto normed = Simd::Mul(Simd::LoadFirst(x + i, n), scale);
    Simd::StoreFirst(out + i, Simd::Mul(normed, Simd::LoadFirst(weight + i, n)), n);
  });
}

template <typename Simd>
void NormAddRow(const float* y, const float* weight, float eps, int64_t size, float* x) {
  const auto scale = Simd::Set1(InverseRms<Simd>(y, size, eps));
  ForVectors(size, [&](int64_t i, int64_t n) {
    const auto normed = Simd::Mul(Simd::LoadFirst(y + i, n), scale);
    const auto weighted = Simd::Mul(normed, Simd::LoadFirst(weight + i, n));
    Simd::StoreFirst(x + i, Simd::Add(Simd::LoadFirst(x + i, n), weighted), n);
  });
}

// Norm, then RoPE of one head; cos and sin [head_dim / 2] are those of the token's position.
template <typename Simd, typename Out>
void NormRopeHead(const float* head, const float* weight, float eps, int64_t head_dim,
                  const float* cos, const float* sin, Out* out) {
  const int64_t half = head_dim / 2;
  const auto scale = Simd::Set1(InverseRms<Simd>(head, head_dim, eps));
  ForVectors(half, [&](int64_t i, int64_t n) {
    const auto normed = [&](int64_t j) {
      return Simd::Mul(Simd::Mul(Simd::LoadFirst(head + j, n), scale),
                       Simd::LoadFirst(weight + j, n));
    };
    const auto a = normed(i);
    const auto b = normed(i + half);
    const auto c = Simd::LoadFirst(cos + i, n);
    const auto s = Simd::LoadFirst(sin + i, n);
    Simd::StoreFirst(out + i, Simd::NegMulAdd(b, s, Simd::Mul(a, c)), n);
    Simd::StoreFirst(out + i + half, Simd::MulAdd(a, s, Simd::Mul(b, c)), n);
  });
}

// Where one token's K and V of one kv head go.
struct KvCells {
  uint32_t* k;  // lane of the token's key in step 0
  uint32_t* v;  // step of the token's key in panel 0
};

inline KvCells CellsOf(const KvLayout& layout, const KvLayer& layer, int64_t slot, int kv_head) {
  const int64_t block = slot / kBlockSize;
  const int64_t key = slot % kBlockSize;
  const int64_t v_step = layout.type == DType::kBF16 ? key / 2 : key;
  return {layout.k_panel(layer.data, block, kv_head, key / kPanelRows) + key % kPanelRows,
          layout.v_panel(layer.data, block, kv_head, 0) + v_step * kStepCells};
}

template <typename Simd>
void StoreKv(const KvLayout& layout, const KvCells& to, int64_t, const float* k, const float* v) {
  for (int64_t i = 0; i < layout.head_dim; ++i) {
    __builtin_memcpy(to.k + i * kStepCells, k + i, sizeof(float));
  }
  for (int64_t p = 0; p < layout.v_panels(); ++p) {
    __builtin_memcpy(to.v + p * layout.v_steps() * kStepCells, v + p * 16, 16 * sizeof(float));
  }
}

template <typename Simd>
void StoreKv(const KvLayout& layout, const KvCells& to, int64_t slot, const BF16* k,
             const float* v) {
  for (int64_t i = 0; i < layout.head_dim / 2; ++i) {
    __builtin_memcpy(to.k + i * kStepCells, k + 2 * i, sizeof(uint32_t));
  }
  for (int64_t i = layout.head_dim / 2; i < layout.k_steps(); ++i) to.k[i * kStepCells] = 0;
  for (int64_t p = 0; p < layout.v_panels(); ++p) {
    BF16 lanes[16];
    Simd::Store(lanes, Simd::Load(v + p * 16));
    auto* halves = reinterpret_cast<BF16*>(to.v + p * layout.v_steps() * kStepCells) + slot % 2;
    for (int lane = 0; lane < 16; ++lane) halves[2 * lane] = lanes[lane];
  }
}

// Zeroes V of the keys that follow `slot` in its block (kv_layout.h).
inline void ClearFollowingValues(const KvLayout& layout, const KvLayer& layer, int64_t slot) {
  const int64_t next = slot % kBlockSize + 1;
  const int64_t keys_per_step = kBlockSize / layout.v_steps();
  const int64_t first_step = (next + keys_per_step - 1) / keys_per_step;
  for (int64_t p = 0; p < layout.num_kv_heads * layout.v_panels(); ++p) {
    uint32_t* panel =
        layout.v_panel(layer.data, slot / kBlockSize, p / layout.v_panels(), p % layout.v_panels());
    for (int64_t cell = 0; next % keys_per_step != 0 && cell < kStepCells; ++cell) {
      panel[next / keys_per_step * kStepCells + cell] &= 0xffffu;
    }
    for (int64_t cell = first_step * kStepCells; cell < layout.v_steps() * kStepCells; ++cell) {
      panel[cell] = 0;
    }
  }
}

// Whether the last token of a run of slots belongs to `t`, and that run opened its block.
inline bool EndsRunThatOpenedBlock(const PoolBatch& batch, int64_t t) {
  const int32_t slot = batch.slot_mapping[t];
  const int32_t offset = slot % kBlockSize;
  if (offset + 1 == kBlockSize) return false;
  if (t + 1 < batch.num_tokens && batch.slot_mapping[t + 1] == slot + 1) return false;
  return t >= offset && batch.slot_mapping[t - offset] == slot - offset;
}

template <typename Simd, typename Act>
void NormRopeStoreToken(const TensorView& qkv, const NormRopeInputs& in,
                        const AttentionShape& shape, const PoolBatch& batch, const KvLayout& layout,
                        const KvLayer& layer, Act* q_out, int64_t t) {
  const int64_t d = shape.head_dim;
  const int32_t position = batch.positions[t];
  CHECK(position >= 0 && position < in.rope.cos.rows);
  const float* cos = in.rope.cos.f32() + position * (d / 2);
  const float* sin = in.rope.sin.f32() + position * (d / 2);
  const float* head = qkv.f32() + t * qkv.cols;
  const float* weight = in.q_norm.f32();
  for (int h = 0; h < shape.num_heads; ++h, head += d, q_out += d) {
    NormRopeHead<Simd>(head, weight, in.eps, d, cos, sin, q_out);
  }
  const int32_t slot = batch.slot_mapping[t];
  if (slot < 0) return;
  CHECK(slot / kBlockSize < layer.num_blocks);
  constexpr int64_t kMaxHeadDim = 1024;
  CHECK(d <= kMaxHeadDim);
  Act k[kMaxHeadDim];
  for (int h = 0; h < shape.num_kv_heads; ++h, head += d) {
    NormRopeHead<Simd>(head, in.k_norm.f32(), in.eps, d, cos, sin, k);
    StoreKv<Simd>(layout, CellsOf(layout, layer, slot, h), slot, k, head + shape.num_kv_heads * d);
  }
  if (EndsRunThatOpenedBlock(batch, t)) ClearFollowingValues(layout, layer, slot);
}

}  // namespace
}  // namespace weightless::kernels
