#include "kernels/backend.h"

#include "kernels/host_backend.h"
#include "kernels/op_checks.h"
#include "kernels/reference/ops.h"

namespace weightless::kernels {
namespace {

const reference::DenseWeight& Dense(const LinearWeight& w) {
  const auto* dense = dynamic_cast<const reference::DenseWeight*>(&w);
  CHECK(dense != nullptr);
  return *dense;
}

class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(DType activation_type) : type_(activation_type) {}

  std::string device_name() const override { return "reference loops, one thread"; }
  std::string numerics() const override { return "reference/" + std::string(Name(type_)); }
  DType activation_type() const override { return type_; }
  size_t workspace_bytes() const override { return 0; }

  std::unique_ptr<LinearWeight> PackDense(std::span<const DenseRows> stacked) override {
    return reference::DenseWeight::Pack(stacked, type_, memory_);
  }
  size_t KvBlockBytes(int num_kv_heads, int head_dim) const override {
    return size_t{2} * kBlockSize * static_cast<size_t>(num_kv_heads) *
           static_cast<size_t>(head_dim) * SizeOf(type_);
  }

  void Embed(const int32_t* ids, const LinearWeight& table, float scale, TensorView x) override {
    CheckEmbed(table, x);
    reference::Embed(ids, Dense(table), scale, x);
  }
  void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out) override {
    CheckNorm(x, weight, out, type_);
    reference::RmsNorm(x, weight, eps, out);
  }
  void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x) override {
    CheckNorm(y, weight, x, DType::kF32);
    reference::RmsNormAdd(y, weight, eps, x);
  }
  void Linear(TensorView x, const LinearWeight& w, TensorView out) override {
    CheckLinear(x, w, out, type_);
    reference::Linear(x, Dense(w), out);
  }
  void LinearGeglu(TensorView x, const LinearWeight& w, TensorView out) override {
    CheckLinearGeglu(x, w, out, type_);
    reference::LinearGeglu(x, Dense(w), out);
  }
  void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in, const AttentionShape& shape,
                       const PoolBatch& batch, const KvLayer& layer, TensorView q_out) override {
    CheckNormRope(qkv, in, shape, batch, layer, q_out, type_);
    reference::NormRopeStoreKv(qkv, in, shape, batch, layer, q_out);
  }
  void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
                 const KvLayer& layer, TensorView out) override {
    CheckAttention(q, shape, batch, layer, out, type_);
    reference::Attention(q, shape, batch, layer, out);
  }
  void Sample(TensorView logits, const int32_t* slots, SlotStates& states,
              SampledToken* out) override {
    HostSlotStates& host = OnHost(states);
    for (int64_t i = 0; i < logits.rows; ++i) {
      if (slots[i] >= 0) out[i] = host.Draw(slots[i], LogitsRow(logits, i), sampler_);
    }
  }
  void Score(TensorView logits, const int32_t* slots, const int32_t* tokens,
             const SlotStates& states, SampledToken* out) override {
    const HostSlotStates& host = OnHost(states);
    for (int64_t i = 0; i < logits.rows; ++i) {
      out[i] = host.Score(slots[i], tokens[i], LogitsRow(logits, i), sampler_);
    }
  }

 private:
  DType type_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(DType activation_type) {
  return std::make_unique<ReferenceBackend>(activation_type);
}

}  // namespace weightless::kernels
