// CpuOps from a Simd, an engine and an activation type.
#pragma once

#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/linear_ops.h"
#include "kernels/cpu/row_ops.h"

namespace weightless::kernels {
namespace {

template <typename Simd, typename Engine, typename Act>
class FamilyOps final : public CpuOps {
 public:
  using Element = typename Engine::Element;
  static constexpr DType kType = sizeof(Act) == 2 ? DType::kBF16 : DType::kF32;

  explicit FamilyOps(const char* name) : name_(name) {}

  const char* name() const override { return name_; }
  DType activation_type() const override { return kType; }

  void RmsNorm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
               int64_t begin, int64_t end) const override {
    for (int64_t t = begin; t < end; ++t) {
      const float* row = x.f32() + t * x.cols;
      if (out.type == DType::kF32) {
        NormRow<Simd>(row, weight.f32(), eps, x.cols, out.f32() + t * x.cols);
      } else {
        NormRow<Simd>(row, weight.f32(), eps, x.cols, out.bf16() + t * x.cols);
      }
    }
  }

  void RmsNormAdd(const TensorView& y, const TensorView& weight, float eps, const TensorView& x,
                  int64_t begin, int64_t end) const override {
    for (int64_t t = begin; t < end; ++t) {
      NormAddRow<Simd>(y.f32() + t * y.cols, weight.f32(), eps, y.cols, x.f32() + t * y.cols);
    }
  }

  void NormRopeStoreKv(const TensorView& qkv, const NormRopeInputs& in, const AttentionShape& shape,
                       const PoolBatch& batch, const KvLayout& layout, const KvLayer& layer,
                       const TensorView& q_out, int64_t begin, int64_t end) const override {
    for (int64_t t = begin; t < end; ++t) {
      Act* q_row = static_cast<Act*>(q_out.data) + t * q_out.cols;
      NormRopeStoreToken<Simd>(qkv, in, shape, batch, layout, layer, q_row, t);
    }
  }

  bool IsPrepared(int64_t k) const override {
    return sizeof(Act) == sizeof(Element) && PaddedK(k, kType) == k;
  }

  void Prepare(const TensorView& x, void* to, int64_t begin, int64_t end) const override {
    const int64_t stride = PaddedK(x.cols, kType);
    for (int64_t t = begin; t < end; ++t) {
      const Act* from = static_cast<const Act*>(x.data) + t * x.cols;
      Element* row = static_cast<Element*>(to) + t * stride;
      int64_t i = 0;
      for (; i + 16 <= x.cols; i += 16) Simd::Store(row + i, Simd::Load(from + i));
      for (; i < x.cols; ++i) Copy(from[i], row[i]);
      for (; i < stride; ++i) row[i] = Element{};
    }
  }

  void Linear(const PreparedRows& x, const PackedWeight& w, float* out, int64_t group,
              int64_t first_row, int64_t rows) const override {
    LinearGroup<Simd, Engine>(x, w, out, group, first_row, rows);
  }

  void LinearGeglu(const PreparedRows& x, const PackedWeight& w, const TensorView& out,
                   int64_t group, int64_t first_row, int64_t rows) const override {
    GegluGroup<Simd, Engine>(x, w, static_cast<Act*>(out.data), group, first_row, rows);
  }

  void Attention(const AttentionCall& call, const AttentionUnit& unit,
                 float* scratch) const override {
    AttendUnit<Simd, Engine, Act>(call, unit, scratch);
  }
  void MergeAttention(const AttentionCall& call, const AttentionPlan::Merge& merge,
                      float* scratch) const override {
    MergeChunks<Simd, Engine, Act>(call, merge, scratch);
  }

 private:
  static void Copy(BF16 from, BF16& to) { to = from; }
  static void Copy(BF16 from, float& to) { to = ToFloat(from); }
  static void Copy(float from, float& to) { to = from; }

  const char* name_;
};

}  // namespace
}  // namespace weightless::kernels
