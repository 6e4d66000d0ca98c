#include "tests/support/fake_engine.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weightless::testing {

namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

constexpr uint64_t kEmptyPrefix = 0x1234567;

uint64_t NextPrefix(uint64_t prefix, int32_t token) {
  return Mix(prefix, static_cast<uint64_t>(token) + 1);
}

uint64_t HashSampling(const proto::Sampling& sampling) {
  uint64_t hash = 7;
  for (const char c : sampling.SerializeAsString()) hash = Mix(hash, static_cast<uint64_t>(c));
  return hash;
}

int32_t Draw(const FakeModel& model, uint64_t prefix, const proto::Sampling& sampling,
             uint64_t sampling_hash, int num_output) {
  const uint64_t hash = Mix(Mix(prefix, sampling_hash), 99) >> 8;
  if (model.stop_one_in > 0 && sampling.stop_token_ids_size() > 0 &&
      num_output >= static_cast<int>(sampling.min_tokens()) &&
      hash % static_cast<uint64_t>(model.stop_one_in) == 0) {
    return sampling.stop_token_ids(0);
  }
  const auto span = static_cast<uint64_t>(model.vocab_size - model.first_token);
  return model.first_token + static_cast<int32_t>(hash / 1024 % span);
}

bool IsStop(const proto::Sampling& sampling, int32_t token) {
  const auto& stops = sampling.stop_token_ids();
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

proto::Logprobs LogprobsAfter(uint64_t prefix, int32_t token, uint32_t num_top) {
  proto::Logprobs logprobs;
  logprobs.set_token(token);
  logprobs.set_logprob(-static_cast<float>(NextPrefix(prefix, token) % 1000) / 100);
  logprobs.set_rank(1 + static_cast<uint32_t>(prefix % 50));
  for (uint32_t i = 0; i < num_top; ++i) {
    logprobs.add_top_tokens(static_cast<int32_t>(i));
    logprobs.add_top_logprobs(-static_cast<float>(i) - static_cast<float>(prefix % 7));
  }
  return logprobs;
}

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace

proto::Geometry TinyGeometry() {
  proto::Geometry geometry;
  geometry.set_block_size(4);
  geometry.set_num_full_blocks(64);
  geometry.set_num_sliding_blocks(64);
  geometry.set_sliding_window(10);
  geometry.set_num_slots(8);
  geometry.set_max_context(200);
  geometry.set_max_step_tokens(32);
  return geometry;
}

proto::Description FakeDescription(const FakeModel& model, const proto::Geometry& geometry) {
  proto::Description description;
  description.set_protocol_version(proto::PROTOCOL_VERSION_CURRENT);
  description.set_worker_version("fake");
  proto::ModelCard& card = *description.mutable_model();
  card.set_name("fake");
  card.set_architecture("Gemma3ForCausalLM");
  card.set_vocab_size(static_cast<uint32_t>(model.vocab_size));
  card.set_num_layers(1);
  card.add_eos_token_ids(model.eos_token);
  card.set_weight_identity("fake");
  *description.mutable_geometry() = geometry;
  description.mutable_device()->set_kind("cpu");
  description.mutable_device()->set_numerics("fake");
  description.mutable_weights()->set_mode("dense");
  description.mutable_weights()->set_dtype("float32");
  return description;
}

std::vector<int32_t> ExpectedOutput(const FakeModel& model, const std::vector<int32_t>& prompt,
                                    const proto::Sampling& sampling, int max_tokens) {
  uint64_t prefix = kEmptyPrefix;
  for (const int32_t token : prompt) prefix = NextPrefix(prefix, token);
  const uint64_t sampling_hash = HashSampling(sampling);
  std::vector<int32_t> output;
  while (static_cast<int>(output.size()) < max_tokens) {
    output.push_back(Draw(model, prefix, sampling, sampling_hash, static_cast<int>(output.size())));
    if (IsStop(sampling, output.back())) break;
    prefix = NextPrefix(prefix, output.back());
  }
  return output;
}

proto::Logprobs FakeLogprobs(const std::vector<int32_t>& prefix, int32_t token, uint32_t num_top) {
  uint64_t hash = kEmptyPrefix;
  for (const int32_t t : prefix) hash = NextPrefix(hash, t);
  return LogprobsAfter(hash, token, num_top);
}

FakeEngine::FakeEngine(const FakeModel& model, const proto::Geometry& geometry)
    : model_(model), geometry_(geometry), block_size_(static_cast<int>(geometry.block_size())) {
  Reset();
}

void FakeEngine::Reset() {
  const Block empty(geometry_.block_size(), 0);
  slots_.assign(geometry_.num_slots(), std::nullopt);
  full_blocks_.assign(geometry_.num_full_blocks(), empty);
  sliding_blocks_.assign(geometry_.num_sliding_blocks(), empty);
  decode_slots_.clear();
  num_steps_ = 0;
}

int FakeEngine::num_live_slots() const {
  return static_cast<int>(
      std::count_if(slots_.begin(), slots_.end(), [](const auto& s) { return s.has_value(); }));
}

int FakeEngine::WindowBegin(int position) const {
  return std::max(0, position - static_cast<int>(geometry_.sliding_window()) + 1);
}

absl::StatusOr<FakeEngine::Slot*> FakeEngine::LiveSlot(uint32_t slot) {
  if (slot >= slots_.size()) return Broken("slot ", slot, " of ", slots_.size());
  if (!slots_[slot].has_value()) return Broken("slot ", slot, " is free");
  return &*slots_[slot];
}

absl::StatusOr<proto::StepResult> FakeEngine::Step(const proto::StepPlan& plan) {
  if (plan.step() != num_steps_ + 1) {
    return Broken("step ", plan.step(), " after step ", num_steps_);
  }
  ++num_steps_;
  RETURN_IF_ERROR(ApplyRelease(plan));
  for (const proto::Admit& admit : plan.admit()) RETURN_IF_ERROR(ApplyAdmit(admit));
  for (const proto::Grow& grow : plan.grow()) RETURN_IF_ERROR(ApplyGrow(grow));
  ASSIGN_OR_RETURN(const std::vector<Run> runs, CollectRuns(plan));
  if (model_.check_blocks) {
    for (const Run& run : runs) RETURN_IF_ERROR(Write(run));
    for (const Run& run : runs) RETURN_IF_ERROR(CheckReads(run));
  }
  proto::StepResult result;
  result.set_step(plan.step());
  int num_tokens = 0;
  for (const Run& run : runs) {
    num_tokens += run.end - run.begin;
    Finish(run, result);
  }
  result.set_num_tokens(static_cast<uint32_t>(num_tokens));
  return result;
}

absl::Status FakeEngine::ApplyRelease(const proto::StepPlan& plan) {
  for (const uint32_t slot : plan.release()) {
    RETURN_IF_ERROR(LiveSlot(slot).status());
    slots_[slot].reset();
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::ApplyAdmit(const proto::Admit& admit) {
  if (admit.slot() >= slots_.size()) return Broken("admit: slot ", admit.slot());
  if (slots_[admit.slot()].has_value()) return Broken("admit: slot ", admit.slot(), " is taken");
  const int num_tokens = admit.tokens_size();
  if (num_tokens < 1 || num_tokens > static_cast<int>(geometry_.max_context())) {
    return Broken("admit: ", num_tokens, " tokens");
  }
  if (admit.num_prompt_tokens() < 1 || static_cast<int>(admit.num_prompt_tokens()) > num_tokens) {
    return Broken("admit: ", admit.num_prompt_tokens(), " prompt tokens of ", num_tokens);
  }
  if (static_cast<int>(admit.num_cached_tokens()) >= num_tokens ||
      admit.num_cached_tokens() % geometry_.block_size() != 0) {
    return Broken("admit: ", admit.num_cached_tokens(), " cached tokens of ", num_tokens);
  }
  Slot& slot = slots_[admit.slot()].emplace();
  slot.admit = admit;
  slot.tokens.assign(admit.tokens().begin(), admit.tokens().end());
  slot.num_known = num_tokens;
  slot.num_computed = static_cast<int>(admit.num_cached_tokens());
  slot.sampling_hash = HashSampling(admit.sampling());
  slot.prefix_hashes.push_back(kEmptyPrefix);
  for (const int32_t token : slot.tokens) {
    slot.prefix_hashes.push_back(NextPrefix(slot.prefix_hashes.back(), token));
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::ApplyGrow(const proto::Grow& grow) {
  ASSIGN_OR_RETURN(Slot * slot, LiveSlot(grow.slot()));
  const bool is_full = grow.pool() == proto::POOL_FULL;
  if (!is_full && grow.pool() != proto::POOL_SLIDING) return Broken("grow: pool ", grow.pool());
  const size_t num_blocks = is_full ? full_blocks_.size() : sliding_blocks_.size();
  std::vector<int64_t>& table = is_full ? slot->full : slot->sliding;
  if (grow.blocks().empty()) return Broken("grow: no blocks");
  if (is_full && grow.first() > table.size()) {
    return Broken("grow: block ", grow.first(), " after ", table.size());
  }
  table.resize(grow.first(), -1);
  for (const uint32_t block : grow.blocks()) {
    if (block >= num_blocks) return Broken("grow: block ", block, " of ", num_blocks);
    table.push_back(block);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FakeEngine::Run>> FakeEngine::CollectRuns(const proto::StepPlan& plan) {
  std::vector<Run> runs;
  std::set<uint32_t> seen;
  uint32_t num_tokens = 0;
  for (const proto::PrefillChunk& chunk : plan.prefill()) {
    ASSIGN_OR_RETURN(Slot * slot, LiveSlot(chunk.slot()));
    if (!seen.insert(chunk.slot()).second) return Broken("prefill: slot ", chunk.slot(), " twice");
    const int end = slot->num_computed + static_cast<int>(chunk.num_tokens());
    if (chunk.num_tokens() < 1 || end > slot->num_known) {
      return Broken("prefill: up to ", end, " of ", slot->num_known, " known tokens");
    }
    runs.push_back({.slot = chunk.slot(), .begin = slot->num_computed, .end = end});
    num_tokens += chunk.num_tokens();
  }
  if (plan.has_decode()) {
    decode_slots_.assign(plan.decode().slots().begin(), plan.decode().slots().end());
    const std::set<uint32_t> distinct(decode_slots_.begin(), decode_slots_.end());
    if (distinct.size() != decode_slots_.size()) return Broken("decode: a slot twice");
    for (const uint32_t slot : decode_slots_) RETURN_IF_ERROR(LiveSlot(slot).status());
  }
  for (const uint32_t id : decode_slots_) {
    if (!slots_[id].has_value() || slots_[id]->ended) continue;
    const Slot& slot = *slots_[id];
    if (seen.contains(id)) return Broken("decode: slot ", id, " has a prefill chunk, too");
    if (slot.num_computed < static_cast<int>(slot.admit.tokens_size())) {
      return Broken("decode: slot ", id, " has ", slot.num_computed, " of ",
                    slot.admit.tokens_size(), " tokens computed");
    }
    runs.push_back({.slot = id, .begin = slot.num_computed, .end = slot.num_computed + 1});
    ++num_tokens;
  }
  if (num_tokens > geometry_.max_step_tokens()) {
    return Broken(num_tokens, " tokens in a step; limit ", geometry_.max_step_tokens());
  }
  return runs;
}

absl::Status FakeEngine::Write(const Run& run) {
  const Slot& slot = *slots_[run.slot];
  for (int position = run.begin; position < run.end; ++position) {
    RETURN_IF_ERROR(WritePosition(slot, position, proto::POOL_FULL));
    if (geometry_.num_sliding_blocks() == 0) continue;
    RETURN_IF_ERROR(WritePosition(slot, position, proto::POOL_SLIDING));
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::WritePosition(const Slot& slot, int position, proto::Pool pool) {
  const bool is_full = pool == proto::POOL_FULL;
  const std::vector<int64_t>& table = is_full ? slot.full : slot.sliding;
  const auto logical = static_cast<size_t>(position / block_size_);
  if (logical >= table.size() || table[logical] < 0) {
    return Broken(proto::Pool_Name(pool), ": slot ", slot.admit.slot(),
                  " has no block for position ", position);
  }
  const auto block = static_cast<uint32_t>(table[logical]);
  if (const auto other = FindOtherUser(slot, block, pool)) {
    return Broken(proto::Pool_Name(pool), ": slot ", slot.admit.slot(), " writes block ", block,
                  ", which slot ", *other, " needs");
  }
  Block& contents = is_full ? full_blocks_[block] : sliding_blocks_[block];
  contents[static_cast<size_t>(position % block_size_)] =
      slot.prefix_hashes[static_cast<size_t>(position) + 1];
  return absl::OkStatus();
}

std::optional<uint32_t> FakeEngine::FindOtherUser(const Slot& slot, uint32_t block,
                                                  proto::Pool pool) const {
  for (const auto& other : slots_) {
    if (!other.has_value() || &*other == &slot || other->ended) continue;
    const bool is_full = pool == proto::POOL_FULL;
    const std::vector<int64_t>& table = is_full ? other->full : other->sliding;
    const int begin = is_full ? 0 : WindowBegin(other->num_computed) / block_size_;
    for (size_t i = static_cast<size_t>(begin); i < table.size(); ++i) {
      if (table[i] == static_cast<int64_t>(block)) return other->admit.slot();
    }
  }
  return std::nullopt;
}

absl::Status FakeEngine::CheckReads(const Run& run) const {
  const Slot& slot = *slots_[run.slot];
  for (int position = 0; position < run.end; ++position) {
    RETURN_IF_ERROR(CheckPosition(slot, position, proto::POOL_FULL));
  }
  if (geometry_.num_sliding_blocks() == 0) return absl::OkStatus();
  for (int position = WindowBegin(run.begin); position < run.end; ++position) {
    RETURN_IF_ERROR(CheckPosition(slot, position, proto::POOL_SLIDING));
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::CheckPosition(const Slot& slot, int position, proto::Pool pool) const {
  const bool is_full = pool == proto::POOL_FULL;
  const std::vector<int64_t>& table = is_full ? slot.full : slot.sliding;
  const auto logical = static_cast<size_t>(position / block_size_);
  if (logical >= table.size() || table[logical] < 0) {
    return Broken(proto::Pool_Name(pool), ": slot ", slot.admit.slot(), " reads position ",
                  position, " without a block");
  }
  const auto block = static_cast<size_t>(table[logical]);
  const Block& contents = is_full ? full_blocks_[block] : sliding_blocks_[block];
  if (contents[static_cast<size_t>(position % block_size_)] !=
      slot.prefix_hashes[static_cast<size_t>(position) + 1]) {
    return Broken(proto::Pool_Name(pool), ": slot ", slot.admit.slot(), " finds block ", block,
                  " with something else at position ", position);
  }
  return absl::OkStatus();
}

void FakeEngine::Finish(const Run& run, proto::StepResult& result) {
  Slot& slot = *slots_[run.slot];
  slot.num_computed = run.end;
  const bool samples = run.end >= slot.num_known;
  const int num_prompt = static_cast<int>(slot.admit.num_prompt_tokens());
  const int num_prompt_logprobs =
      slot.admit.has_prompt_logprobs() ? std::min(run.end, num_prompt - 1) - run.begin : 0;
  if (!samples && num_prompt_logprobs <= 0) return;

  proto::SlotResult& out = *result.add_slots();
  out.set_slot(run.slot);
  for (int i = 0; i < num_prompt_logprobs; ++i) {
    const auto next = static_cast<size_t>(run.begin + i + 1);
    *out.add_prompt_logprobs() =
        LogprobsAfter(slot.prefix_hashes[next], slot.tokens[next], slot.admit.prompt_logprobs());
  }
  if (!samples) return;
  const proto::Sampling& sampling = slot.admit.sampling();
  const uint64_t prefix = slot.prefix_hashes.back();
  const int32_t token = Draw(model_, prefix, sampling, slot.sampling_hash,
                             static_cast<int>(slot.tokens.size()) - num_prompt);
  out.set_token(token);
  if (sampling.has_logprobs()) {
    *out.mutable_logprobs() = LogprobsAfter(prefix, token, sampling.logprobs());
  }
  slot.tokens.push_back(token);
  slot.prefix_hashes.push_back(NextPrefix(prefix, token));
  slot.num_known = static_cast<int>(slot.tokens.size());
  slot.ended = IsStop(sampling, token) || slot.tokens.size() >= geometry_.max_context();
  out.set_ended(slot.ended);
}

}  // namespace weightless::testing
