#include <cmath>

#include "kernels/reference/ops.h"

namespace weightless::kernels::reference {
namespace {

double InverseRms(const float* x, int64_t size, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += double{x[i]} * double{x[i]};
  return 1 / std::sqrt(sum / static_cast<double>(size) + double{eps});
}

// The value at `i` of a normalised head, before RoPE.
double Normed(const float* head, const TensorView& weight, double inverse_rms, int64_t i) {
  return double{head[i]} * inverse_rms * double{weight.f32()[i]};
}

void NormRopeHead(const float* head, const TensorView& weight, const NormRopeInputs& in,
                  int32_t position, TensorView out, int64_t out_index) {
  const int64_t half = weight.cols / 2;
  const double inverse_rms = InverseRms(head, weight.cols, in.eps);
  for (int64_t i = 0; i < half; ++i) {
    const double a = Normed(head, weight, inverse_rms, i);
    const double b = Normed(head, weight, inverse_rms, i + half);
    const double c = double{in.rope.cos.f32()[position * half + i]};
    const double s = double{in.rope.sin.f32()[position * half + i]};
    Store(out, out_index + i, static_cast<float>(a * c - b * s));
    Store(out, out_index + i + half, static_cast<float>(b * c + a * s));
  }
}

TensorView KvRow(const KvLayer& layer, DType type, int64_t slot, int kv_head, bool value) {
  CHECK(slot >= 0 && slot / kBlockSize < layer.num_blocks);
  const int64_t row_in_block = kv_head * kBlockSize + slot % kBlockSize;
  const int64_t rows_per_block = int64_t{2} * layer.num_kv_heads * kBlockSize;
  const int64_t row = slot / kBlockSize * rows_per_block + (value ? rows_per_block / 2 : 0);
  const auto row_bytes = static_cast<int64_t>(SizeOf(type)) * layer.head_dim;
  char* data = static_cast<char*>(layer.data) + (row + row_in_block) * row_bytes;
  return {data, type, 1, layer.head_dim};
}

}  // namespace

TensorView KeyRow(const KvLayer& layer, DType type, int64_t slot, int kv_head) {
  return KvRow(layer, type, slot, kv_head, false);
}

TensorView ValueRow(const KvLayer& layer, DType type, int64_t slot, int kv_head) {
  return KvRow(layer, type, slot, kv_head, true);
}

void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* row = x.f32() + t * x.cols;
    const double inverse_rms = InverseRms(row, x.cols, eps);
    for (int64_t i = 0; i < x.cols; ++i) {
      Store(out, t * x.cols + i, static_cast<float>(Normed(row, weight, inverse_rms, i)));
    }
  }
}

void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x) {
  for (int64_t t = 0; t < y.rows; ++t) {
    const float* row = y.f32() + t * y.cols;
    const double inverse_rms = InverseRms(row, y.cols, eps);
    for (int64_t i = 0; i < y.cols; ++i) {
      float& sum = x.f32()[t * y.cols + i];
      sum = static_cast<float>(double{sum} + Normed(row, weight, inverse_rms, i));
    }
  }
}

void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in, const AttentionShape& shape,
                     const PoolBatch& batch, const KvLayer& layer, TensorView q_out) {
  const int64_t d = shape.head_dim;
  for (int64_t t = 0; t < batch.num_tokens; ++t) {
    const int32_t position = batch.positions[t];
    CHECK(position >= 0 && position < in.rope.cos.rows);
    const float* head = qkv.f32() + t * qkv.cols;
    for (int h = 0; h < shape.num_heads; ++h, head += d) {
      NormRopeHead(head, in.q_norm, in, position, q_out, t * q_out.cols + h * d);
    }
    const int32_t slot = batch.slot_mapping[t];
    if (slot < 0) continue;
    for (int h = 0; h < shape.num_kv_heads; ++h, head += d) {
      NormRopeHead(head, in.k_norm, in, position, KeyRow(layer, q_out.type, slot, h), 0);
      const TensorView v = ValueRow(layer, q_out.type, slot, h);
      for (int64_t i = 0; i < d; ++i) Store(v, i, head[shape.num_kv_heads * d + i]);
    }
  }
}

}  // namespace weightless::kernels::reference
