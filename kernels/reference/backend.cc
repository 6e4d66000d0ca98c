#include "kernels/backend.h"

#include <atomic>
#include <cstring>

#include "kernels/host_memory.h"
#include "kernels/op_checks.h"
#include "kernels/reference/ops.h"
#include "kernels/sampler.h"

namespace weightless::kernels {
namespace {

const reference::DenseWeight& Dense(const LinearWeight& w) {
  const auto* dense = dynamic_cast<const reference::DenseWeight*>(&w);
  CHECK(dense != nullptr);
  return *dense;
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(DType activation_type) : type_(activation_type) {}

  std::string device_kind() const override { return "cpu"; }
  std::string device_name() const override { return "reference loops, one thread"; }
  std::string numerics() const override { return "reference/" + std::string(Name(type_)); }
  DType activation_type() const override { return type_; }
  size_t memory_total_bytes() const override { return HostMemoryBytes(); }
  size_t memory_allocated_bytes() const override { return memory_.allocated_bytes(); }
  size_t workspace_bytes() const override { return 0; }

  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override {
    return memory_.Allocate(size_bytes);
  }
  void Upload(const void* host, size_t size_bytes, void* device) override {
    if (size_bytes > 0) std::memcpy(device, host, size_bytes);
  }
  void Download(const void* device, size_t size_bytes, void* host) override {
    if (size_bytes > 0) std::memcpy(host, device, size_bytes);
  }
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
  void GatherRows(TensorView x, const int32_t* rows, TensorView out) override {
    CheckGatherRows(x, out);
    reference::GatherRows(x, rows, out);
  }
  void Sample(TensorView logits, std::span<const SampleRow> rows,
              std::span<SampledToken> out) override {
    CHECK(static_cast<size_t>(logits.rows) == rows.size() && rows.size() == out.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto vocab = static_cast<size_t>(logits.cols);
      out[i] = sampler_.Sample({logits.f32() + i * vocab, vocab}, rows[i]);
    }
  }
  void Synchronize() override {}

 private:
  DType type_;
  HostMemory memory_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(DType activation_type) {
  return std::make_unique<ReferenceBackend>(activation_type);
}

}  // namespace weightless::kernels
