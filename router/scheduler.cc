#include "router/scheduler.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "router/waiting_queue.h"

namespace weightless::router {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      // Every slot must be able to decode in one step.
      num_slots_(static_cast<int>(
          std::min(options.geometry.num_slots(), options.geometry.max_step_tokens()))),
      pools_(options.geometry),
      run_of_slot_(static_cast<size_t>(num_slots_), -1) {
  for (int slot = num_slots_; slot-- > 0;) free_slots_.push_back(static_cast<uint32_t>(slot));
}

Scheduler::Probe Scheduler::Examine(const Sequence& sequence) const {
  if (free_slots_.empty() || sequence.max_len() > max_sequence_len()) return {};
  if (someone_lacks_blocks_ && !running_.empty()) return {};
  const int block_size = static_cast<int>(options_.geometry.block_size());
  // At least one token is left to compute; prompt logprobs need every position's logits.
  const int max_blocks =
      sequence.wants_prompt_logprobs() ? 0 : (sequence.num_tokens() - 1) / block_size;
  KvPools::Demand demand;
  demand.hashes = sequence.hashes;
  demand.num_cached = pools_.FindPrefix(sequence.hashes, max_blocks);
  demand.num_tokens = std::min(sequence.num_tokens() + 1, sequence.max_len() - 1);
  if (!running_.empty()) {
    demand.num_spare_full = pools_.full().num_blocks() / 100;
    for (const auto& other : running_) demand.num_spare_sliding += pools_.SlidingLack(*other);
  }
  return {.can_start = pools_.CanAdmit(demand),
          .num_cached_tokens = demand.num_cached * block_size};
}

void Scheduler::Admit(std::unique_ptr<Sequence> sequence) {
  const Probe probe = Examine(*sequence);
  CHECK(probe.can_start);
  sequence->on = {};
  sequence->on.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence->on.num_known = sequence->num_tokens();
  pools_.Admit(*sequence,
               probe.num_cached_tokens / static_cast<int>(options_.geometry.block_size()));
  if (!sequence->num_cached_tokens.has_value()) {
    sequence->num_cached_tokens = std::min(probe.num_cached_tokens, sequence->num_prompt_tokens);
  }
  running_.push_back(std::move(sequence));
}

bool Scheduler::IsPrefilling(const Sequence& sequence) const {
  return sequence.on.state == Residence::State::kRunning &&
         sequence.on.num_computed < sequence.on.num_known;
}

bool Scheduler::IsDecoding(const Sequence& sequence) const {
  // A step at position p samples token p + 1.
  return sequence.on.state == Residence::State::kRunning &&
         sequence.on.num_computed >= sequence.on.num_known &&
         sequence.on.num_computed + 1 < sequence.max_len();
}

int Scheduler::num_prefilling() const {
  return static_cast<int>(std::count_if(running_.begin(), running_.end(),
                                        [this](const auto& s) { return IsPrefilling(*s); }));
}

int64_t Scheduler::num_outstanding_tokens() const {
  int64_t sum = 0;
  for (const auto& sequence : running_) sum += sequence->max_len() - sequence->on.num_computed;
  return sum;
}

std::optional<proto::StepPlan> Scheduler::Schedule() {
  if (std::exchange(someone_lacks_blocks_, false)) ++num_unblocked_;
  budget_ = static_cast<int>(options_.geometry.max_step_tokens());
  for (const auto& sequence : running_) pools_.Publish(*sequence);
  PlanDecodes();
  prefill_budget_ =
      options_.max_chunk_tokens > 0 ? std::min(budget_, options_.max_chunk_tokens) : budget_;
  PlanPrefills();
  SweepPreempted();
  if (budget_ == static_cast<int>(options_.geometry.max_step_tokens())) return std::nullopt;
  return BuildPlan();
}

void Scheduler::PlanDecodes() {
  for (const auto& sequence : running_) {
    if (IsDecoding(*sequence) && CoverDecode(*sequence)) Give(*sequence, 1);
  }
}

bool Scheduler::CoverDecode(Sequence& sequence) {
  while (pools_.Cover(sequence, 1) == 0) {
    Sequence* victim = PickVictim();
    if (victim == &sequence) {
      someone_lacks_blocks_ = true;
      return false;
    }
    Preempt(*victim);
  }
  return true;
}

void Scheduler::OrderPrefills() {
  prefills_.clear();
  for (const auto& sequence : running_) {
    if (IsPrefilling(*sequence)) prefills_.push_back(sequence.get());
  }
  std::stable_sort(prefills_.begin(), prefills_.end(), [](const Sequence* a, const Sequence* b) {
    if (a->account->used != b->account->used) return a->account->used < b->account->used;
    return a->request.priority < b->request.priority;
  });
}

void Scheduler::PlanPrefills() {
  const int whole_budget = static_cast<int>(options_.geometry.max_step_tokens());
  OrderPrefills();
  for (Sequence* sequence : prefills_) {
    while (prefill_budget_ > 0 && IsPrefilling(*sequence)) {
      const int num_left = sequence->on.num_known - sequence->on.num_computed;
      const int num_tokens = pools_.Cover(*sequence, std::min(num_left, prefill_budget_));
      if (num_tokens > 0) {
        Give(*sequence, num_tokens);
        prefill_budget_ -= num_tokens;
        break;
      }
      someone_lacks_blocks_ = true;
      // Others will give blocks back, unless nobody runs at all.
      if (budget_ < whole_budget || !in_flight_.empty()) break;
      Sequence* victim = PickVictim();
      if (victim == sequence) break;
      Preempt(*victim);
    }
  }
}

void Scheduler::Give(Sequence& sequence, int num_tokens) {
  sequence.on.num_run = num_tokens;
  sequence.on.num_computed += num_tokens;
  budget_ -= num_tokens;
}

bool Scheduler::IsPreemptible(const Sequence& sequence) const {
  return sequence.on.state == Residence::State::kRunning &&
         (sequence.on.num_run > 0 || IsPrefilling(sequence) || IsDecoding(sequence));
}

bool Scheduler::MakeRoomFor(const Sequence& waiting) {
  if (waiting.max_len() > max_sequence_len()) return false;
  std::map<std::string_view, int> num_running;  // by key
  for (const auto& sequence : running_) ++num_running[sequence->request.key_id];
  const int num_own = num_running[waiting.request.key_id];
  Sequence* victim = nullptr;
  int most = num_own + 2;
  for (const auto& sequence : running_) {
    const int num = num_running[sequence->request.key_id];
    if (!IsPreemptible(*sequence) || num < most) continue;
    if (num == most && victim != nullptr && !IsBetterVictim(*sequence, *victim)) continue;
    most = num;
    victim = sequence.get();
  }
  if (victim == nullptr) return false;
  Preempt(*victim);
  SweepPreempted();
  return true;
}

bool Scheduler::IsBetterVictim(const Sequence& a, const Sequence& b) const {
  if (a.account->used != b.account->used) return a.account->used > b.account->used;
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  if (a.sequence_id == last_preempted_id_) return false;
  return b.sequence_id == last_preempted_id_ || a.sequence_id > b.sequence_id;
}

Sequence* Scheduler::PickVictim() const {
  Sequence* best = nullptr;
  for (const auto& sequence : running_) {
    if (!IsPreemptible(*sequence)) continue;
    if (best == nullptr || IsBetterVictim(*sequence, *best)) best = sequence.get();
  }
  return best;
}

void Scheduler::Preempt(Sequence& victim) {
  Residence& on = victim.on;
  budget_ += on.num_run;
  on.num_computed -= on.num_run;
  on.num_run = 0;
  pools_.Release(victim);
  free_slots_.push_back(on.slot);
  if (on.announced) released_slots_.push_back(on.slot);
  on.state = Residence::State::kPreempted;
  last_preempted_id_ = victim.sequence_id;
  ++num_preemptions_;
}

void Scheduler::SweepPreempted() {
  const auto first = std::stable_partition(
      running_.begin(), running_.end(),
      [](const auto& sequence) { return sequence->on.state == Residence::State::kRunning; });
  std::move(first, running_.end(), std::back_inserter(preempted_));
  running_.erase(first, running_.end());
}

proto::StepPlan Scheduler::BuildPlan() {
  proto::StepPlan plan;
  plan.set_step(++num_steps_);
  plan.mutable_release()->Add(released_slots_.begin(), released_slots_.end());
  released_slots_.clear();

  InFlight step{.step = num_steps_, .runs = {}};
  if (!spare_runs_.empty()) {
    step.runs = std::move(spare_runs_.back());
    spare_runs_.pop_back();
  }
  decode_slots_.clear();
  last_plan_continues_ = false;
  for (const auto& sequence : running_) {
    Residence& on = sequence->on;
    if (on.announced) last_plan_continues_ |= on.num_run > 0;
    AnnounceChanges(*sequence, plan);
    if (on.num_run == 0) continue;
    const bool is_prefill = on.num_computed <= on.num_known;
    if (is_prefill) {
      proto::PrefillChunk& chunk = *plan.add_prefill();
      chunk.set_slot(on.slot);
      chunk.set_num_tokens(static_cast<uint32_t>(on.num_run));
    } else {
      decode_slots_.push_back(on.slot);
    }
    step.runs.push_back({.slot = on.slot,
                         .num_tokens = on.num_run,
                         .samples = on.num_computed >= on.num_known,
                         .sequence = sequence.get()});
    on.num_run = 0;
    ++on.num_in_flight;
  }
  if (decode_slots_ != sent_decode_slots_) {
    plan.mutable_decode()->mutable_slots()->Add(decode_slots_.begin(), decode_slots_.end());
    sent_decode_slots_ = decode_slots_;
  }
  in_flight_.push_back(std::move(step));
  return plan;
}

void Scheduler::AnnounceChanges(Sequence& sequence, proto::StepPlan& plan) {
  Residence& on = sequence.on;
  if (!on.announced) {
    on.announced = true;
    proto::Admit& admit = *plan.add_admit();
    admit.set_slot(on.slot);
    admit.mutable_tokens()->Add(sequence.tokens.begin(), sequence.tokens.end());
    admit.set_num_prompt_tokens(static_cast<uint32_t>(sequence.num_prompt_tokens));
    admit.set_num_cached_tokens(static_cast<uint32_t>(on.num_computed - on.num_run));
    *admit.mutable_sampling() = sequence.request.sampling;
    if (sequence.wants_prompt_logprobs()) {
      admit.set_prompt_logprobs(*sequence.request.prompt_logprobs);
    }
  }
  const auto announce = [&](BlockTable& table, proto::Pool pool) {
    const int first = std::max(table.num_sent, table.begin);
    if (first >= table.end()) return;
    proto::Grow& grow = *plan.add_grow();
    grow.set_slot(on.slot);
    grow.set_pool(pool);
    grow.set_first(static_cast<uint32_t>(first));
    grow.mutable_blocks()->Add(table.blocks.begin() + first, table.blocks.end());
    table.num_sent = table.end();
  };
  announce(on.full, proto::POOL_FULL);
  announce(on.sliding, proto::POOL_SLIDING);
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakePreempted() {
  std::vector<std::unique_ptr<Sequence>> taken;
  std::erase_if(preempted_, [&](std::unique_ptr<Sequence>& sequence) {
    if (sequence->on.num_in_flight > 0) return false;
    sequence->on = {};
    taken.push_back(std::move(sequence));
    return true;
  });
  return taken;
}

std::unique_ptr<Sequence> Scheduler::Remove(Sequence& sequence) {
  for (InFlight& step : in_flight_) {
    for (Run& run : step.runs) {
      if (run.sequence == &sequence) run.sequence = nullptr;
    }
  }
  Residence& on = sequence.on;
  if (on.state == Residence::State::kRunning) {
    pools_.Publish(sequence);
    pools_.Release(sequence);
    free_slots_.push_back(on.slot);
    if (on.announced) released_slots_.push_back(on.slot);
  }
  on = {};
  for (auto* list : {&running_, &preempted_}) {
    const auto found = std::find_if(list->begin(), list->end(),
                                    [&](const auto& entry) { return entry.get() == &sequence; });
    if (found == list->end()) continue;
    std::unique_ptr<Sequence> taken = std::move(*found);
    list->erase(found);
    return taken;
  }
  CHECK(false && "sequence is not here");
  return nullptr;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::TakeAll() {
  std::vector<std::unique_ptr<Sequence>> all = std::move(running_);
  std::move(preempted_.begin(), preempted_.end(), std::back_inserter(all));
  running_.clear();
  preempted_.clear();
  in_flight_.clear();
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->sequence_id < b->sequence_id; });
  return all;
}

void Scheduler::CheckInvariants() const {
  pools_.CheckInvariants();
  CHECK(running_.size() + free_slots_.size() == static_cast<size_t>(num_slots_));
  std::vector<bool> taken(static_cast<size_t>(num_slots_), false);
  const auto take = [&](uint32_t slot) {
    CHECK(!taken[slot]);
    taken[slot] = true;
  };
  std::vector<bool> full_used(static_cast<size_t>(pools_.full().num_blocks()), false);
  std::vector<bool> sliding_used(static_cast<size_t>(pools_.sliding().num_blocks()), false);
  for (const uint32_t slot : free_slots_) take(slot);
  for (const auto& sequence : running_) {
    const Residence& on = sequence->on;
    take(on.slot);
    CHECK(on.state == Residence::State::kRunning && on.num_run == 0 &&
          on.num_committed <= on.num_computed);
    CHECK(sequence->num_tokens() < sequence->max_len());
    for (const uint32_t block : on.full.blocks) full_used[block] = true;
    for (int i = on.sliding.begin; i < on.sliding.end(); ++i) {
      sliding_used[on.sliding.blocks[static_cast<size_t>(i)]] = true;
    }
  }
  for (const auto& sequence : preempted_) CHECK(sequence->on.full.blocks.empty());
  const auto count = [](const std::vector<bool>& used) {
    return static_cast<int>(std::count(used.begin(), used.end(), true));
  };
  CHECK(count(full_used) == pools_.full().num_used());
  CHECK(count(sliding_used) == pools_.sliding().num_used());
}

}  // namespace weightless::router
