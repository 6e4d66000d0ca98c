#include "router/engine_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "common/worker_facts.h"

namespace weightless::router {

namespace {

// A sequence that was running when so many workers in a row were lost ends.
constexpr int kMaxLosses = 3;

// Of the fuller pool: when that one is full, sequences wait.
double UsedRatio(const Loads& loads) {
  int64_t full_used = 0, full = 0, sliding_used = 0, sliding = 0;
  for (const ReplicaLoad& load : loads.replicas) {
    full_used += load.full_blocks_used;
    full += load.full_blocks_total;
    sliding_used += load.sliding_blocks_used;
    sliding += load.sliding_blocks_total;
  }
  const auto ratio = [](int64_t used, int64_t all) {
    return all > 0 ? static_cast<double>(used) / static_cast<double>(all) : 0;
  };
  return std::max(ratio(full_used, full), ratio(sliding_used, sliding));
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, WorkerPool pool, const PrefixHasher& hasher,
                       Admission& admission, RouterMetrics& metrics)
    : config_(config),
      pool_(std::move(pool)),
      hasher_(hasher),
      admission_(admission),
      metrics_(metrics) {}

void EngineCore::OnSubmitted(std::vector<std::unique_ptr<Sequence>> sequences, absl::Time now) {
  for (std::unique_ptr<Sequence>& sequence : sequences) {
    sequence->sequence_id = ++num_sequences_;
    sequence->submitted_at = now;
    next_expiry_ = std::min({next_expiry_, sequence->request.deadline, WaitsUntil(*sequence)});
    queue_.Push(std::move(sequence));
    ++num_live_;
  }
}

void EngineCore::OnStreamsClosed() {
  for (auto& sequence : TakeIf([](const Sequence& s) { return s.stream->closed(); })) {
    End(std::move(sequence), absl::OkStatus());
  }
}

void EngineCore::OnWorkerReady(int replica_idx, uint64_t connection_id,
                               const proto::Description& description, const ServedModel& served,
                               absl::Time now) {
  Replica* replica = pool_.Find(replica_idx, connection_id);
  if (replica == nullptr) return;
  absl::Status status = CheckDescription(description);
  if (status.ok()) status = CheckServes(served.description, description);
  if (!status.ok()) {
    replica->metrics.refusals.Add();
    replica->length_limit = {};
    pool_.MarkDown(*replica, status, now);
    OnReadyChanged(now);
    return;
  }
  if (description.device().numerics() != served.description.device().numerics()) {
    LogWarning("worker_numerics_differ", {{"worker", replica->address},
                                          {"numerics", description.device().numerics()},
                                          {"served", served.description.device().numerics()}});
  }
  pool_.MarkReady(*replica, {.geometry = description.geometry(),
                             .vocab_size = static_cast<int>(description.model().vocab_size()),
                             .max_chunk_tokens = config_.max_chunk_tokens,
                             .hasher = &hasher_});
  metrics_.Describe(replica->address, FactsOf(description));
  OnReadyChanged(now);
}

void EngineCore::OnResult(int replica_idx, uint64_t connection_id, const proto::StepResult& result,
                          absl::Time now) {
  Replica* replica = pool_.Find(replica_idx, connection_id);
  if (replica == nullptr || replica->scheduler == nullptr) return;
  const absl::Status status = replica->scheduler->Commit(result, outcome_);
  for (const Emission& emission : outcome_.emissions) Emit(emission, now);
  num_live_ -= static_cast<int>(outcome_.finished.size());
  outcome_.finished.clear();
  if (!status.ok()) {
    LogError("faulty_result", {{"worker", replica->address}, {"error", status.ToString()}});
    GiveUp(*replica, status, now);
    return;
  }
  CountStep(*replica, result, now);
  ReturnPreempted(*replica->scheduler);
}

void EngineCore::Emit(const Emission& emission, absl::Time now) {
  Sequence& sequence = *emission.sequence;
  sequence.account->used += FairAccount::kOutputTokenCost;
  const bool is_first = sequence.num_output_tokens() == 1;
  if (!is_first && !emission.end.has_value() && !emission.result->has_logprobs()) {
    sequence.stream->PutToken(emission.token, now);
    return;
  }
  TokenBatch batch;
  batch.arrived_at = now;
  batch.tokens.push_back({.token = emission.token, .logprobs = std::nullopt});
  if (emission.result->has_logprobs()) batch.tokens[0].logprobs = emission.result->logprobs();
  if (is_first) {
    batch.num_cached_tokens = sequence.num_cached_tokens.value_or(0);
    batch.placed_at = sequence.placed_at;
    batch.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  }
  batch.end = emission.end;
  sequence.stream->Put(std::move(batch));
}

void EngineCore::CountStep(Replica& replica, const proto::StepResult& result, absl::Time now) {
  const auto on_device =
      absl::Nanoseconds(std::min<uint64_t>(result.compute_ns(), uint64_t{1} << 62));
  if (replica.stalls.OnResult(now, on_device)) replica.metrics.plan_ahead_stalls.Add();
  replica.progress_at = now;
  replica.metrics.steps.Add();
  replica.metrics.step_seconds.Observe(absl::ToDoubleSeconds(on_device));
  replica.metrics.batch_size.Observe(outcome_.batch_size);
  const auto num_sampled = static_cast<double>(outcome_.emissions.size());
  replica.metrics.sampled_tokens.Add(num_sampled);
  replica.metrics.step_tokens.Observe(outcome_.num_prompt_tokens + num_sampled);
  metrics_.prompt_tokens.Add(outcome_.num_prompt_tokens);
  metrics_.recomputed_tokens.Add(outcome_.num_recomputed_tokens);
}

void EngineCore::ReturnPreempted(Scheduler& scheduler) {
  for (auto& sequence : scheduler.TakePreempted()) queue_.Push(std::move(sequence));
}

void EngineCore::OnWorkerLost(int replica_idx, uint64_t connection_id, const absl::Status& status,
                              absl::Time now) {
  Replica* replica = pool_.Find(replica_idx, connection_id);
  if (replica == nullptr) return;
  if (replica->scheduler != nullptr && absl::IsInvalidArgument(status)) {
    replica->metrics.rejected_plans.Add();
    LogError("plan_rejected", {{"worker", replica->address}, {"error", status.ToString()}});
  }
  GiveUp(*replica, status, now);
}

void EngineCore::GiveUp(Replica& replica, const absl::Status& why, absl::Time now) {
  if (replica.scheduler != nullptr) {
    for (auto& sequence : replica.scheduler->TakeAll()) {
      if (sequence->on.num_in_flight > 0) ++sequence->num_losses;
      sequence->on = {};
      if (sequence->num_losses < kMaxLosses) {
        metrics_.migrations.Add();
        queue_.Push(std::move(sequence));
        continue;
      }
      metrics_.poisoned_sequences.Add();
      const std::string message =
          absl::StrCat(kMaxLosses, " workers in a row were lost while this sequence ran");
      LogError("sequence_poisoned",
               {{"request_id", sequence->request.request_id}, {"worker", replica.address}});
      End(std::move(sequence), absl::InternalError(message));
    }
  }
  metrics_.Forget(replica.address);
  pool_.MarkDown(replica, why, now);
  OnReadyChanged(now);
}

std::vector<std::string> EngineCore::SetListed(const std::vector<std::string>& addresses) {
  std::vector<std::string> missing = pool_.SetListed(addresses);
  admission_.SetLengthLimit(pool_.length_limit());
  return missing;
}

void EngineCore::OnReadyChanged(absl::Time now) {
  int64_t ready_len = 0;
  for (const Replica& replica : pool_.replicas()) {
    if (replica.scheduler == nullptr) continue;
    ready_len = std::max(ready_len, replica.scheduler->max_sequence_len());
  }
  admission_.SetReady(pool_.num_ready(), ready_len);
  admission_.SetLengthLimit(pool_.length_limit());
  if (ready_len == queue_.max_len()) return;
  queue_.SetMaxLen(ready_len);
  ready_len_since_ = now;
  next_expiry_ = now;  // every sequence is looked at again
}

absl::Time EngineCore::WaitsUntil(const Sequence& sequence) const {
  if (sequence.max_len() <= queue_.max_len()) return absl::InfiniteFuture();
  return std::max(sequence.submitted_at, ready_len_since_) + config_.worker_wait_timeout;
}

std::vector<std::unique_ptr<Sequence>> EngineCore::TakeIf(
    const std::function<bool(const Sequence&)>& condition) {
  std::vector<std::unique_ptr<Sequence>> taken = queue_.Take(condition);
  std::vector<Sequence*> found;
  for (Replica& replica : pool_.replicas()) {
    if (replica.scheduler == nullptr) continue;
    found.clear();
    replica.scheduler->ForEach([&](Sequence& sequence) {
      if (condition(sequence)) found.push_back(&sequence);
    });
    for (Sequence* sequence : found) taken.push_back(replica.scheduler->Remove(*sequence));
  }
  return taken;
}

void EngineCore::End(std::unique_ptr<Sequence> sequence, const absl::Status& status) {
  --num_live_;
  if (!sequence->was_placed()) admission_.Leave(sequence->request.key_id, 1);
  if (status.ok()) return;
  TokenBatch batch;
  batch.end = EndReason::kError;
  batch.status = status;
  sequence->stream->Put(std::move(batch));
}

void EngineCore::EndAll(const absl::Status& status) {
  for (auto& sequence : TakeIf([](const Sequence&) { return true; })) {
    End(std::move(sequence), status);
  }
}

void EngineCore::DisconnectAll() {
  for (Replica& replica : pool_.replicas()) replica.client->Disconnect();
}

void EngineCore::ExpireSequences(absl::Time now) {
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteFuture();
  const auto expired = [&](const Sequence& sequence) {
    const absl::Time end = std::min(sequence.request.deadline, WaitsUntil(sequence));
    if (end <= now) return true;
    next_expiry_ = std::min(next_expiry_, end);
    return false;
  };
  for (auto& sequence : TakeIf(expired)) {
    absl::Status status;
    if (sequence->request.deadline <= now) {
      metrics_.expired_sequences.Add();
      status = absl::DeadlineExceededError(
          absl::StrCat("not finished within ",
                       absl::FormatDuration(sequence->request.deadline - sequence->submitted_at)));
    } else {
      status = absl::UnavailableError(
          absl::StrCat(queue_.max_len() == 0 ? "no worker" : "no worker that holds so many tokens",
                       " has been ready for ", absl::FormatDuration(config_.worker_wait_timeout)));
    }
    End(std::move(sequence), status);
  }
}

void EngineCore::CheckStepTimeouts(absl::Time now) {
  for (Replica& replica : pool_.replicas()) {
    if (replica.scheduler == nullptr || replica.scheduler->num_in_flight() == 0) continue;
    if (now < replica.progress_at + config_.step_timeout) continue;
    GiveUp(replica,
           absl::DeadlineExceededError(
               absl::StrCat("no step result for ", absl::FormatDuration(config_.step_timeout))),
           now);
  }
}

void EngineCore::Pump(absl::Time now, bool want_files) {
  ExpireSequences(now);
  CheckStepTimeouts(now);
  if (pool_.Tick(now, want_files)) OnReadyChanged(now);
  Place(now);
  for (Replica& replica : pool_.replicas()) {
    if (replica.scheduler != nullptr) ScheduleReplica(replica, now);
  }
}

EngineCore::Refusal EngineCore::PresentState(const Sequence& head) const {
  Refusal state{.head_id = head.sequence_id, .num_releases = 0, .num_connections = 0};
  for (const Replica& replica : pool_.replicas()) {
    if (replica.scheduler == nullptr) continue;
    state.num_releases += replica.scheduler->num_releases();
    state.num_connections += replica.connection_id;
  }
  return state;
}

void EngineCore::Place(absl::Time now) {
  while (Sequence* head = queue_.Head()) {
    const Refusal state = PresentState(*head);
    if (state == refusal_) return;
    Replica* replica = pool_.Choose(*head);
    if (replica == nullptr && pool_.MakeRoom(*head)) {
      metrics_.preemptions.Add();
      replica = pool_.Choose(*head);
      if (replica == nullptr) return;  // perhaps more have to yield: one for each look
    }
    if (replica == nullptr) {
      // What keeps a sequence after a loss from a replica may pass without a release.
      if (head->num_losses == 0) refusal_ = state;
      return;
    }
    std::unique_ptr<Sequence> sequence = queue_.Pop(*head);
    refusal_ = {};
    Sequence& placed = *sequence;
    const bool is_new = !placed.was_placed();
    replica->scheduler->Admit(std::move(sequence));
    if (!is_new) continue;
    admission_.Leave(placed.request.key_id, 1);
    placed.placed_at = now;
    metrics_.queue_seconds.Observe(absl::ToDoubleSeconds(now - placed.submitted_at));
    metrics_.prefix_queried_tokens.Add(placed.num_prompt_tokens);
    metrics_.cached_tokens.Add(*placed.num_cached_tokens);
    metrics_.vllm.prompt_tokens_computed.Add(placed.num_prompt_tokens - *placed.num_cached_tokens);
  }
}

void EngineCore::ScheduleReplica(Replica& replica, absl::Time now) {
  Scheduler& scheduler = *replica.scheduler;
  const uint64_t num_preemptions = scheduler.num_preemptions();
  while (scheduler.num_in_flight() < config_.plan_ahead) {
    std::optional<proto::StepPlan> plan = scheduler.Schedule();
    if (!plan.has_value()) break;
    if (plan->step() == 1) plan->set_owner(config_.owner);
    if (scheduler.num_in_flight() == 1) replica.progress_at = now;
    if (replica.stalls.OnSent(now, scheduler.last_plan_continues())) {
      replica.metrics.plan_ahead_stalls.Add();
    }
    replica.client->Send(*std::move(plan));
  }
  metrics_.preemptions.Add(static_cast<double>(scheduler.num_preemptions() - num_preemptions));
  ReturnPreempted(scheduler);
}

absl::Time EngineCore::NextPump() const {
  absl::Time next = std::min(next_expiry_, pool_.NextTick());
  for (const Replica& replica : pool_.replicas()) {
    if (replica.scheduler == nullptr || replica.scheduler->num_in_flight() == 0) continue;
    next = std::min(next, replica.progress_at + config_.step_timeout);
  }
  return next;
}

Loads EngineCore::ComputeLoads() {
  Loads loads;
  loads.num_queued = static_cast<int>(queue_.size());
  int num_running = 0;
  for (Replica& replica : pool_.replicas()) {
    if (replica.state == Replica::State::kRetired) continue;
    ReplicaLoad load{.address = replica.address};
    if (replica.scheduler != nullptr) {
      const Scheduler& scheduler = *replica.scheduler;
      const BlockPool& full = scheduler.pools().full();
      const BlockPool& sliding = scheduler.pools().sliding();
      load.ready = true;
      load.num_running = scheduler.num_running();
      load.num_waiting = scheduler.num_prefilling();
      load.num_outstanding_tokens = scheduler.num_outstanding_tokens();
      load.full_blocks_used = full.num_used();
      load.full_blocks_total = full.num_blocks();
      load.sliding_blocks_used = sliding.num_used();
      load.sliding_blocks_total = sliding.num_blocks();
      replica.metrics.full_blocks_cached.Set(full.num_cached());
      replica.metrics.sliding_blocks_cached.Set(sliding.num_cached());
      num_running += load.num_running;
    }
    replica.metrics.running_sequences.Set(load.num_running);
    replica.metrics.full_blocks_used.Set(static_cast<double>(load.full_blocks_used));
    replica.metrics.sliding_blocks_used.Set(static_cast<double>(load.sliding_blocks_used));
    loads.replicas.push_back(std::move(load));
  }
  metrics_.kv_used_ratio.Set(UsedRatio(loads));
  metrics_.queued_sequences.Set(loads.num_queued);
  metrics_.running_sequences.Set(num_running);
  return loads;
}

void EngineCore::CheckInvariants() const {
  int num_live = static_cast<int>(queue_.size());
  for (const Replica& replica : pool_.replicas()) {
    CHECK((replica.scheduler != nullptr) == (replica.state == Replica::State::kReady));
    if (replica.scheduler == nullptr) continue;
    replica.scheduler->CheckInvariants();
    replica.scheduler->ForEach([&](const Sequence&) { ++num_live; });
  }
  CHECK(num_live == num_live_);
}

}  // namespace weightless::router
