#include "worker/slots.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/concat.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/sampling_params.h"

namespace weightless::worker {

using kernels::kBlockSize;
using kernels::kMaxLogprobs;

namespace {

constexpr int32_t kNotSet = -1;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

}  // namespace

int PlanLimits::max_blocks_per_seq() const { return (max_context + kBlockSize - 1) / kBlockSize; }

Slots::Slots(const PlanLimits& limits)
    : limits_(limits),
      sequences_(static_cast<size_t>(limits.num_slots)),
      last_run_(static_cast<size_t>(limits.num_slots)) {
  const auto num_slots = static_cast<size_t>(limits.num_slots);
  decode_set_.reserve(num_slots);
  runs_.reserve(num_slots);
}

absl::StatusOr<std::span<const Run>> Slots::Apply(const proto::StepPlan& plan) {
  if (plan.step() != step_ + 1) return Invalid("step ", plan.step(), " is not ", step_ + 1);
  step_ = plan.step();
  runs_.clear();
  admitted_.clear();
  table_changes_.clear();
  num_step_tokens_ = 0;
  step_continues_ = false;
  for (const uint32_t slot : plan.release()) RETURN_IF_ERROR(Release(slot));
  for (const proto::Admit& admit : plan.admit()) RETURN_IF_ERROR(Admit(admit));
  const int64_t max_grows = int64_t{2} * limits_.num_slots * limits_.max_blocks_per_seq();
  if (plan.grow_size() > max_grows) {  // empty ones would be cheap to send and dear to apply
    return Invalid("grow: ", plan.grow_size(), " entries exceed ", max_grows,
                   ", one for each block of each slot");
  }
  for (const proto::Grow& grow : plan.grow()) RETURN_IF_ERROR(Grow(grow));
  if (plan.has_decode()) RETURN_IF_ERROR(SetDecodeSet(plan.decode()));
  RETURN_IF_ERROR(AddDecodes());
  for (const proto::PrefillChunk& chunk : plan.prefill()) RETURN_IF_ERROR(AddPrefill(chunk));
  return std::span<const Run>(runs_);
}

void Slots::Commit(const Run& run) {
  Sequence& sequence = sequences_[static_cast<size_t>(run.slot)];
  CHECK(sequence.in_use && !sequence.ended && run.end() <= sequence.num_tokens);
  sequence.num_computed = run.end();
  if (run.end() < sequence.num_tokens) return;
  ++sequence.num_tokens;
  sequence.ended = sequence.num_tokens >= limits_.max_context;
}

void Slots::End(int slot, uint64_t sequence_id) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  if (sequence.id == sequence_id) sequence.ended = true;
}

void Slots::Reset() {
  for (Sequence& sequence : sequences_) sequence = Sequence{};
  num_used_ = 0;
  std::fill(last_run_.begin(), last_run_.end(), uint64_t{0});
  decode_set_.clear();
  runs_.clear();
  admitted_.clear();
  table_changes_.clear();
  step_ = 0;
}

absl::StatusOr<int> Slots::CheckSlot(std::string_view field, uint32_t slot) const {
  if (slot < static_cast<uint32_t>(limits_.num_slots)) return static_cast<int>(slot);
  return Invalid(field, " ", slot, " is not below num_slots ", limits_.num_slots);
}

absl::Status Slots::Release(uint32_t released) {
  ASSIGN_OR_RETURN(const int slot, CheckSlot("release", released));
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  if (!sequence.in_use) return Invalid("release ", slot, ": the slot is free");
  sequence.in_use = false;
  --num_used_;
  decode_set_.erase(std::remove(decode_set_.begin(), decode_set_.end(), slot), decode_set_.end());
  return absl::OkStatus();
}

absl::Status Slots::Admit(const proto::Admit& admit) {
  ASSIGN_OR_RETURN(const int slot, CheckSlot("admit.slot", admit.slot()));
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  if (sequence.in_use) return Invalid("admit.slot ", slot, " is in use");
  const int num_tokens = admit.tokens_size();
  if (num_tokens < 1 || num_tokens > limits_.max_context) {
    return Invalid("admit.tokens: ", num_tokens, " are outside 1 .. max_context ",
                   limits_.max_context);
  }
  for (const int32_t token : admit.tokens()) {
    if (token < 0 || token >= limits_.vocab_size) {
      return Invalid("admit.tokens ", token, " is outside 0 .. ", limits_.vocab_size - 1);
    }
  }
  if (admit.num_prompt_tokens() < 1 ||
      admit.num_prompt_tokens() > static_cast<uint32_t>(num_tokens)) {
    return Invalid("admit.num_prompt_tokens ", admit.num_prompt_tokens(), " is outside 1 .. ",
                   num_tokens, " tokens");
  }
  if (admit.num_cached_tokens() >= static_cast<uint32_t>(num_tokens) ||
      admit.num_cached_tokens() % kBlockSize != 0) {
    return Invalid("admit.num_cached_tokens ", admit.num_cached_tokens(),
                   " is not a multiple of block_size ", kBlockSize, " below ", num_tokens,
                   " tokens");
  }
  if (admit.prompt_logprobs() > kMaxLogprobs) {
    return Invalid("admit.prompt_logprobs ", admit.prompt_logprobs(), " exceeds ", kMaxLogprobs);
  }
  ASSIGN_OR_RETURN(sequence.sampling, ParseSampling(admit.sampling(), limits_.vocab_size));
  sequence.in_use = true;
  ++num_used_;
  last_run_[static_cast<size_t>(slot)] = 0;
  sequence.ended = false;
  sequence.id = ++last_id_;
  sequence.known_tokens.assign(admit.tokens().begin(), admit.tokens().end());
  sequence.num_prompt_tokens = static_cast<int>(admit.num_prompt_tokens());
  sequence.num_tokens = num_tokens;
  sequence.num_computed = static_cast<int>(admit.num_cached_tokens());
  if (admit.has_prompt_logprobs()) {
    sequence.sampling.num_prompt_logprobs = static_cast<int>(admit.prompt_logprobs());
  }
  const auto num_entries = static_cast<size_t>(limits_.max_blocks_per_seq());
  sequence.full_blocks.assign(num_entries, kNotSet);
  sequence.sliding_blocks.assign(num_entries, kNotSet);
  admitted_.push_back(slot);
  return absl::OkStatus();
}

absl::Status Slots::Grow(const proto::Grow& grow) {
  ASSIGN_OR_RETURN(const int slot, CheckSlot("grow.slot", grow.slot()));
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  if (!sequence.in_use) return Invalid("grow.slot ", slot, ": the slot is free");
  if (grow.pool() != proto::POOL_FULL && grow.pool() != proto::POOL_SLIDING) {
    return Invalid("grow.pool ", static_cast<int>(grow.pool()), " is neither full nor sliding");
  }
  const bool sliding = grow.pool() == proto::POOL_SLIDING;
  const int64_t num_blocks = sliding ? limits_.num_sliding_blocks : limits_.num_full_blocks;
  std::vector<int32_t>& table = sliding ? sequence.sliding_blocks : sequence.full_blocks;
  const int64_t end = int64_t{grow.first()} + grow.blocks_size();
  if (end > limits_.max_blocks_per_seq()) {
    return Invalid("grow.first ", grow.first(), " with ", grow.blocks_size(),
                   " blocks exceeds the ", limits_.max_blocks_per_seq(), " blocks of max_context ",
                   limits_.max_context);
  }
  size_t entry = grow.first();
  for (const uint32_t block : grow.blocks()) {
    if (block >= num_blocks) {
      return Invalid("grow.blocks ", block, " is not below ",
                     sliding ? "num_sliding_blocks " : "num_full_blocks ", num_blocks);
    }
    table[entry++] = static_cast<int32_t>(block);
  }
  table_changes_.push_back({.slot = slot,
                            .sliding = sliding,
                            .first = static_cast<int>(grow.first()),
                            .count = grow.blocks_size()});
  return absl::OkStatus();
}

absl::Status Slots::SetDecodeSet(const proto::DecodeSet& decode) {
  decode_set_.clear();
  for (const uint32_t named : decode.slots()) {
    ASSIGN_OR_RETURN(const int slot, CheckSlot("decode.slots", named));
    decode_set_.push_back(slot);
    // A slot listed twice would fill the set beyond all bounds; the run check names it otherwise.
    if (decode_set_.size() > sequences_.size()) {
      return Invalid("decode.slots: more than num_slots ", limits_.num_slots);
    }
  }
  return absl::OkStatus();
}

absl::Status Slots::AddDecodes() {
  for (const int slot : decode_set_) {
    const Sequence& sequence = sequences_[static_cast<size_t>(slot)];
    if (!sequence.in_use || sequence.ended) continue;
    const auto num_known = static_cast<int>(sequence.known_tokens.size());
    if (sequence.num_computed < num_known) {
      return Invalid("decode.slots ", slot, ": ", sequence.num_computed, " of ", num_known,
                     " known tokens are computed");
    }
    RETURN_IF_ERROR(AddRun({.slot = slot, .first = sequence.num_computed, .num_tokens = 1}));
  }
  return absl::OkStatus();
}

absl::Status Slots::AddPrefill(const proto::PrefillChunk& chunk) {
  ASSIGN_OR_RETURN(const int slot, CheckSlot("prefill.slot", chunk.slot()));
  const Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  if (!sequence.in_use) return Invalid("prefill.slot ", slot, ": the slot is free");
  const int left =
      std::max(0, static_cast<int>(sequence.known_tokens.size()) - sequence.num_computed);
  if (chunk.num_tokens() < 1 || int64_t{chunk.num_tokens()} > left) {
    return Invalid("prefill.num_tokens ", chunk.num_tokens(), " of slot ", slot,
                   " is outside 1 .. ", left, " known tokens left");
  }
  return AddRun({.slot = slot,
                 .first = sequence.num_computed,
                 .num_tokens = static_cast<int>(chunk.num_tokens())});
}

absl::Status Slots::AddRun(const Run& run) {
  uint64_t& last_run = last_run_[static_cast<size_t>(run.slot)];
  if (last_run == step_) return Invalid("slot ", run.slot, " runs twice in step ", step_);
  if (last_run > 0 && last_run + 1 == step_) step_continues_ = true;
  last_run = step_;
  num_step_tokens_ += run.num_tokens;
  if (num_step_tokens_ > limits_.max_step_tokens) {
    return Invalid("step tokens: ", num_step_tokens_, " exceed max_step_tokens ",
                   limits_.max_step_tokens);
  }
  RETURN_IF_ERROR(CheckTables(run));
  runs_.push_back(run);
  return absl::OkStatus();
}

absl::Status Slots::CheckTables(const Run& run) const {
  const Sequence& sequence = sequences_[static_cast<size_t>(run.slot)];
  const int end_entry = (run.end() - 1) / kBlockSize + 1;
  const auto is_covered = [end_entry](const std::vector<int32_t>& table, int first_entry) {
    return std::find(table.begin() + first_entry, table.begin() + end_entry, kNotSet) ==
           table.begin() + end_entry;
  };
  if (!is_covered(sequence.full_blocks, 0)) {
    return Invalid("slot ", run.slot, ": full block table does not cover positions 0 .. ",
                   run.end() - 1);
  }
  if (limits_.sliding_window == 0) return absl::OkStatus();
  const int first_visible = std::max(0, run.first - limits_.sliding_window + 1);
  if (!is_covered(sequence.sliding_blocks, first_visible / kBlockSize)) {
    return Invalid("slot ", run.slot, ": sliding block table does not cover positions ",
                   first_visible, " .. ", run.end() - 1);
  }
  return absl::OkStatus();
}

}  // namespace weightless::worker
