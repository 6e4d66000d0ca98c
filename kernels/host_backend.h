// What the backends that compute on host memory share: memory, steps, the slots' sampling state.
// Their ops are done when they return, so a step is done at EndStep.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host_memory.h"
#include "kernels/sampler.h"

namespace weightless::kernels {

class HostSlotStates final : public SlotStates {
 public:
  // Null when the memory does not suffice. `memory` outlives the states.
  static std::unique_ptr<HostSlotStates> Make(int num_slots, HostMemory& memory);

  void Admit(int slot, const SamplingParams& params, std::span<const int32_t> tokens,
             int num_prompt_tokens) override;

  int32_t last_token(int32_t slot) const { return last_tokens_[Index(slot)]; }
  // Different slots may be drawn for by several threads, each with a sampler of its own.
  SampledToken Draw(int32_t slot, std::span<float> logits, Sampler& sampler);
  SampledToken Score(int32_t slot, int32_t token, std::span<float> logits, Sampler& sampler) const;

 private:
  struct Slot {
    SamplingParams params;
    std::vector<int32_t> tokens;
    int num_prompt_tokens = 0;
  };

  size_t Index(int32_t slot) const;

  std::vector<Slot> slots_;
  std::unique_ptr<Buffer> buffer_;
  std::span<int32_t> last_tokens_;  // by slot
};

// CHECK-fails on the states of another kind of backend.
HostSlotStates& OnHost(SlotStates& states);
const HostSlotStates& OnHost(const SlotStates& states);

inline std::span<float> LogitsRow(const TensorView& logits, int64_t row) {
  return {logits.f32() + row * logits.cols, static_cast<size_t>(logits.cols)};
}

class HostBackend : public Backend {
 public:
  std::string device_kind() const override { return "cpu"; }
  size_t memory_total_bytes() const override { return HostMemoryBytes(); }
  size_t memory_allocated_bytes() const override { return memory_.allocated_bytes(); }

  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override;
  void Upload(const void* host, size_t size_bytes, void* device) override;
  void Download(const void* device, size_t size_bytes, void* host) override;
  void DownloadLater(const void* device, size_t size_bytes, void* host) override;
  std::unique_ptr<SlotStates> MakeSlotStates(int num_slots, int max_context,
                                             int vocab_size) override;

  int steps_in_flight() const override { return 1; }
  void BeginStep() override;
  void EndStep() override;
  bool IsStepDone() override { return true; }
  uint64_t CollectStep() override;
  int PadDecodes(int num_seqs) const override { return num_seqs; }
  void RunDecodes(int, const std::function<void()>& ops) override { ops(); }

  void GatherRows(TensorView x, const int32_t* rows, TensorView out) override;
  void FeedTokens(const SlotStates& states, const int32_t* slots, int num_slots,
                  int32_t* ids) override;

 protected:
  HostMemory memory_;

 private:
  std::chrono::steady_clock::time_point step_begin_;
  std::deque<uint64_t> steps_;  // nanoseconds of each that is not collected
};

}  // namespace weightless::kernels
