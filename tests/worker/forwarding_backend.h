// A backend that passes every call on to another, for tests that change some of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace weightless::kernels {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> real) : real_(std::move(real)) {}

  std::string device_kind() const override { return real_->device_kind(); }
  std::string device_name() const override { return real_->device_name(); }
  std::string numerics() const override { return real_->numerics(); }
  DType activation_type() const override { return real_->activation_type(); }
  size_t memory_total_bytes() const override { return real_->memory_total_bytes(); }
  size_t memory_allocated_bytes() const override { return real_->memory_allocated_bytes(); }
  size_t workspace_bytes() const override { return real_->workspace_bytes(); }
  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override {
    return real_->Allocate(size_bytes);
  }
  void Upload(const void* host, size_t size_bytes, void* device) override {
    real_->Upload(host, size_bytes, device);
  }
  void Download(const void* device, size_t size_bytes, void* host) override {
    real_->Download(device, size_bytes, host);
  }
  void DownloadLater(const void* device, size_t size_bytes, void* host) override {
    real_->DownloadLater(device, size_bytes, host);
  }
  std::unique_ptr<SlotStates> MakeSlotStates(int num_slots, int max_context,
                                             int vocab_size) override {
    return real_->MakeSlotStates(num_slots, max_context, vocab_size);
  }
  int steps_in_flight() const override { return real_->steps_in_flight(); }
  void BeginStep() override { real_->BeginStep(); }
  void EndStep() override { real_->EndStep(); }
  bool IsStepDone() override { return real_->IsStepDone(); }
  uint64_t CollectStep() override { return real_->CollectStep(); }
  int PadDecodes(int num_seqs) const override { return real_->PadDecodes(num_seqs); }
  void RunDecodes(int num_seqs, const std::function<void()>& ops) override {
    real_->RunDecodes(num_seqs, ops);
  }
  std::unique_ptr<LinearWeight> PackDense(std::span<const DenseRows> stacked) override {
    return real_->PackDense(stacked);
  }
  size_t KvBlockBytes(int num_kv_heads, int head_dim) const override {
    return real_->KvBlockBytes(num_kv_heads, head_dim);
  }
  void Embed(const int32_t* ids, const LinearWeight& table, float scale, TensorView x) override {
    real_->Embed(ids, table, scale, x);
  }
  void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out) override {
    real_->RmsNorm(x, weight, eps, out);
  }
  void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x) override {
    real_->RmsNormAdd(y, weight, eps, x);
  }
  void Linear(TensorView x, const LinearWeight& w, TensorView out) override {
    real_->Linear(x, w, out);
  }
  void LinearGeglu(TensorView x, const LinearWeight& w, TensorView out) override {
    real_->LinearGeglu(x, w, out);
  }
  void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in, const AttentionShape& shape,
                       const PoolBatch& batch, const KvLayer& layer, TensorView q_out) override {
    real_->NormRopeStoreKv(qkv, in, shape, batch, layer, q_out);
  }
  void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
                 const KvLayer& layer, TensorView out) override {
    real_->Attention(q, shape, batch, layer, out);
  }
  void GatherRows(TensorView x, const int32_t* rows, TensorView out) override {
    real_->GatherRows(x, rows, out);
  }
  void FeedTokens(const SlotStates& states, const int32_t* slots, int num_slots,
                  int32_t* ids) override {
    real_->FeedTokens(states, slots, num_slots, ids);
  }
  void Sample(TensorView logits, const int32_t* slots, SlotStates& states,
              SampledToken* out) override {
    real_->Sample(logits, slots, states, out);
  }
  void Score(TensorView logits, const int32_t* slots, const int32_t* tokens,
             const SlotStates& states, SampledToken* out) override {
    real_->Score(logits, slots, tokens, states, out);
  }

 protected:
  const std::unique_ptr<Backend> real_;
};

}  // namespace weightless::kernels
