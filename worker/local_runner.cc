#include "worker/local_runner.h"

#include <algorithm>
#include <utility>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::worker {
namespace {

std::vector<uint32_t> Descending(uint32_t count) {
  std::vector<uint32_t> ids(count);
  for (uint32_t i = 0; i < count; ++i) ids[i] = count - 1 - i;
  return ids;
}

// Takes `count` ids off the end of `free` and writes them into the plan.
std::vector<uint32_t> TakeBlocks(std::vector<uint32_t>& free, size_t count, int slot,
                                 proto::Pool pool, proto::StepPlan& plan) {
  std::vector<uint32_t> taken(free.end() - static_cast<std::ptrdiff_t>(count), free.end());
  free.resize(free.size() - count);
  proto::Grow& grow = *plan.add_grow();
  grow.set_slot(static_cast<uint32_t>(slot));
  grow.set_pool(pool);
  grow.mutable_blocks()->Add(taken.begin(), taken.end());
  return taken;
}

}  // namespace

LocalRunner::LocalRunner(Engine& engine)
    : engine_(engine), geometry_(engine.description().geometry()) {
  engine_.Reset();
  for (uint32_t slot : Descending(geometry_.num_slots())) {
    free_slots_.push_back(static_cast<int>(slot));
  }
  free_full_ = Descending(geometry_.num_full_blocks());
  free_sliding_ = Descending(geometry_.num_sliding_blocks());
}

bool LocalRunner::HasRoomFor(int num_tokens) const {
  const size_t num_blocks =
      (static_cast<size_t>(num_tokens) + geometry_.block_size() - 1) / geometry_.block_size();
  return !free_slots_.empty() && num_blocks <= free_full_.size() &&
         (geometry_.sliding_window() == 0 || num_blocks <= free_sliding_.size());
}

absl::StatusOr<int> LocalRunner::Add(LocalSequence sequence) {
  const size_t num_tokens = std::min<size_t>(
      sequence.tokens.size() + static_cast<size_t>(sequence.max_tokens), geometry_.max_context());
  if (!HasRoomFor(static_cast<int>(num_tokens))) {
    return absl::ResourceExhaustedError(Concat(
        "no room for a sequence of ", num_tokens, " tokens: ", free_slots_.size(), " slots, ",
        free_full_.size(), " full and ", free_sliding_.size(), " sliding blocks are free"));
  }
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  proto::Admit& admit = *plan_.add_admit();
  admit.set_slot(static_cast<uint32_t>(slot));
  admit.mutable_tokens()->Add(sequence.tokens.begin(), sequence.tokens.end());
  admit.set_num_prompt_tokens(static_cast<uint32_t>(sequence.tokens.size()));
  *admit.mutable_sampling() = sequence.sampling;
  if (sequence.prompt_logprobs) admit.set_prompt_logprobs(*sequence.prompt_logprobs);

  Running running;
  running.sequence = std::move(sequence);
  const size_t num_blocks = (num_tokens + geometry_.block_size() - 1) / geometry_.block_size();
  running.full_blocks = TakeBlocks(free_full_, num_blocks, slot, proto::POOL_FULL, plan_);
  if (geometry_.sliding_window() > 0) {
    running.sliding_blocks =
        TakeBlocks(free_sliding_, num_blocks, slot, proto::POOL_SLIDING, plan_);
  }
  running_.emplace(slot, std::move(running));
  prefill_order_.push_back(slot);
  return slot;
}

absl::StatusOr<proto::StepResult> LocalRunner::Step() {
  plan_.set_step(plan_.step() + 1);
  proto::DecodeSet& decode = *plan_.mutable_decode();
  uint32_t budget = geometry_.max_step_tokens();
  for (const auto& [slot, running] : running_) {
    if (running.num_output == 0) continue;
    decode.add_slots(static_cast<uint32_t>(slot));
    --budget;
  }
  for (const int slot : prefill_order_) {
    Running& running = running_.at(slot);
    const uint32_t left = static_cast<uint32_t>(running.sequence.tokens.size()) -
                          static_cast<uint32_t>(running.num_prefilled);
    const uint32_t count = std::min(left, budget);
    if (count == 0) break;
    proto::PrefillChunk& chunk = *plan_.add_prefill();
    chunk.set_slot(static_cast<uint32_t>(slot));
    chunk.set_num_tokens(count);
    running.num_prefilled += static_cast<int>(count);
    budget -= count;
  }
  ASSIGN_OR_RETURN(proto::StepResult result, engine_.Step(plan_));
  const uint64_t step = plan_.step();
  plan_.Clear();
  plan_.set_step(step);
  for (const proto::SlotResult& slot_result : result.slots()) {
    if (!slot_result.has_token()) continue;
    const auto it = running_.find(static_cast<int>(slot_result.slot()));
    Running& running = it->second;
    if (++running.num_output == 1) {
      prefill_order_.erase(std::find(prefill_order_.begin(), prefill_order_.end(), it->first));
    }
    if (slot_result.ended() || running.num_output >= running.sequence.max_tokens) Remove(it);
  }
  return result;
}

void LocalRunner::Remove(std::map<int, Running>::iterator it) {
  const auto& [slot, running] = *it;
  plan_.add_release(static_cast<uint32_t>(slot));
  free_slots_.push_back(slot);
  free_full_.insert(free_full_.end(), running.full_blocks.begin(), running.full_blocks.end());
  free_sliding_.insert(free_sliding_.end(), running.sliding_blocks.begin(),
                       running.sliding_blocks.end());
  running_.erase(it);
}

}  // namespace weightless::worker
