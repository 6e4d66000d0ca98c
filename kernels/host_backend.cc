#include "kernels/host_backend.h"

#include <cstring>

#include "common/check.h"
#include "kernels/op_checks.h"

namespace weightless::kernels {

HostSlotStates& OnHost(SlotStates& states) {
  auto* host = dynamic_cast<HostSlotStates*>(&states);
  CHECK(host != nullptr);
  return *host;
}

const HostSlotStates& OnHost(const SlotStates& states) {
  const auto* host = dynamic_cast<const HostSlotStates*>(&states);
  CHECK(host != nullptr);
  return *host;
}

std::unique_ptr<HostSlotStates> HostSlotStates::Make(int num_slots, HostMemory& memory) {
  CHECK(num_slots > 0);
  auto states = std::make_unique<HostSlotStates>();
  const auto count = static_cast<size_t>(num_slots);
  states->size_bytes_ = count * sizeof(int32_t);
  states->buffer_ = memory.Allocate(states->size_bytes_);
  if (states->buffer_ == nullptr) return nullptr;
  states->last_tokens_ = {static_cast<int32_t*>(states->buffer_->data()), count};
  states->slots_.resize(count);
  return states;
}

void HostSlotStates::Admit(int slot, const SamplingParams& params, std::span<const int32_t> tokens,
                           int num_prompt_tokens) {
  Slot& state = slots_[Index(slot)];
  state.params = params;
  state.tokens.assign(tokens.begin(), tokens.end());
  state.num_prompt_tokens = num_prompt_tokens;
}

SampledToken HostSlotStates::Draw(int32_t slot, std::span<float> logits, Sampler& sampler) {
  Slot& state = slots_[Index(slot)];
  const SampledToken sampled = sampler.Sample(logits, {.params = &state.params,
                                                       .tokens = state.tokens,
                                                       .num_prompt_tokens = state.num_prompt_tokens,
                                                       .num_logprobs = state.params.num_logprobs});
  state.tokens.push_back(sampled.token);
  last_tokens_[Index(slot)] = sampled.token;
  return sampled;
}

SampledToken HostSlotStates::Score(int32_t slot, int32_t token, std::span<float> logits,
                                   Sampler& sampler) const {
  return sampler.Sample(logits, {.draw = false,
                                 .target_token = token,
                                 .num_logprobs = slots_[Index(slot)].params.num_prompt_logprobs});
}

size_t HostSlotStates::Index(int32_t slot) const {
  const auto index = static_cast<size_t>(slot);
  CHECK(slot >= 0 && index < slots_.size());
  return index;
}

std::unique_ptr<Buffer> HostBackend::Allocate(size_t size_bytes) {
  return memory_.Allocate(size_bytes);
}

void HostBackend::Upload(const void* host, size_t size_bytes, void* device) {
  if (size_bytes > 0) std::memcpy(device, host, size_bytes);
}

void HostBackend::Download(const void* device, size_t size_bytes, void* host) {
  if (size_bytes > 0) std::memcpy(host, device, size_bytes);
}

void HostBackend::DownloadLater(const void* device, size_t size_bytes, void* host) {
  Download(device, size_bytes, host);
}

std::unique_ptr<SlotStates> HostBackend::MakeSlotStates(int num_slots, int, int) {
  return HostSlotStates::Make(num_slots, memory_);
}

void HostBackend::BeginStep() { step_begin_ = std::chrono::steady_clock::now(); }

void HostBackend::EndStep() {
  const auto took = std::chrono::steady_clock::now() - step_begin_;
  steps_.push_back(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
}

uint64_t HostBackend::CollectStep() {
  CHECK(!steps_.empty());
  const uint64_t took = steps_.front();
  steps_.pop_front();
  return took;
}

void HostBackend::GatherRows(TensorView x, const int32_t* rows, TensorView out) {
  CheckGatherRows(x, out);
  for (int64_t i = 0; i < out.rows; ++i) {
    CHECK(rows[i] >= 0 && rows[i] < x.rows);
    std::memcpy(out.f32() + i * x.cols, x.f32() + rows[i] * x.cols,
                static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void HostBackend::FeedTokens(const SlotStates& states, const int32_t* slots, int num_slots,
                             int32_t* ids) {
  const HostSlotStates& host = OnHost(states);
  for (int i = 0; i < num_slots; ++i) ids[i] = slots[i] < 0 ? 0 : host.last_token(slots[i]);
}

}  // namespace weightless::kernels
