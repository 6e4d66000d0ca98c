#include <cmath>

#include "kernels/host_memory.h"
#include "kernels/reference/ops.h"

namespace weightless::kernels::reference {

std::unique_ptr<DenseWeight> DenseWeight::Pack(std::span<const DenseRows> stacked, DType type,
                                               HostMemory& memory) {
  CHECK(!stacked.empty());
  auto w = std::make_unique<DenseWeight>();
  w->k_ = stacked.front().k;
  for (const DenseRows& part : stacked) {
    CHECK(part.k == w->k_ && part.n > 0);
    w->n_ += part.n;
  }
  w->size_bytes_ = static_cast<size_t>(w->n_ * w->k_) * sizeof(float);
  w->buffer_ = memory.Allocate(w->size_bytes_);
  if (w->buffer_ == nullptr) return nullptr;
  auto* out = static_cast<float*>(w->buffer_->data());
  w->values_ = out;
  for (const DenseRows& part : stacked) {
    part.read(0, part.n, out);
    for (float* value = out; type == DType::kBF16 && value < out + part.n * part.k; ++value) {
      *value = ToFloat(ToBF16(*value));
    }
    out += part.n * part.k;
  }
  return w;
}

float Load(const TensorView& t, int64_t index) {
  return t.type == DType::kF32 ? t.f32()[index] : ToFloat(t.bf16()[index]);
}

void Store(const TensorView& t, int64_t index, float value) {
  if (t.type == DType::kF32) {
    t.f32()[index] = value;
  } else {
    t.bf16()[index] = ToBF16(value);
  }
}

static double Dot(const TensorView& x, int64_t row, const float* w) {
  double sum = 0;
  for (int64_t i = 0; i < x.cols; ++i) sum += double{Load(x, row * x.cols + i)} * double{w[i]};
  return sum;
}

void Embed(const int32_t* ids, const DenseWeight& table, float scale, TensorView x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    CHECK(ids[t] >= 0 && ids[t] < table.n());
    for (int64_t i = 0; i < x.cols; ++i) x.f32()[t * x.cols + i] = table.row(ids[t])[i] * scale;
  }
}

void Linear(TensorView x, const DenseWeight& w, TensorView out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t n = 0; n < w.n(); ++n) {
      out.f32()[t * w.n() + n] = static_cast<float>(Dot(x, t, w.row(n)));
    }
  }
}

void LinearGeglu(TensorView x, const DenseWeight& w, TensorView out) {
  const int64_t f = w.n() / 2;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t n = 0; n < f; ++n) {
      const double gate = Dot(x, t, w.row(n));
      const double inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate);
      const double gelu = 0.5 * gate * (1 + std::tanh(inner));
      Store(out, t * f + n, static_cast<float>(gelu * Dot(x, t, w.row(f + n))));
    }
  }
}

}  // namespace weightless::kernels::reference
