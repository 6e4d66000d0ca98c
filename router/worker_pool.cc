#include "router/worker_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "router/kv_pools.h"

namespace weightless::router {

namespace {

constexpr absl::Duration kMinBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
// Describe, every model file, and the worker's word that it is ours.
constexpr absl::Duration kConnectTimeout = absl::Seconds(90);

// A worker that has not been ready yet may still be loading: no reason to warn, for so long.
constexpr absl::Duration kStartGrace = absl::Seconds(30);

// A sequence that was running when two workers in a row were lost may be what kills them.
constexpr int kSuspectLosses = 2;

bool HasSuspect(const Scheduler& scheduler) {
  bool found = false;
  scheduler.ForEach(
      [&](const Sequence& sequence) { found |= sequence.num_losses >= kSuspectLosses; });
  return found;
}

}  // namespace

absl::Status CheckDescription(const proto::Description& description) {
  const auto check = [](const char* field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field, " ", value, " is not in ", min, " .. ", max));
  };
  constexpr int64_t kMaxCount = 1 << 24;
  const proto::Geometry& g = description.geometry();
  RETURN_IF_ERROR(check("protocol_version", description.protocol_version(),
                        proto::PROTOCOL_VERSION_CURRENT, proto::PROTOCOL_VERSION_CURRENT));
  RETURN_IF_ERROR(check("vocab_size", description.model().vocab_size(), 1, kMaxCount));
  RETURN_IF_ERROR(check("block_size", g.block_size(), 1, 4096));
  RETURN_IF_ERROR(check("num_full_blocks", g.num_full_blocks(), 1, kMaxCount));
  RETURN_IF_ERROR(check("num_sliding_blocks", g.num_sliding_blocks(), 0, kMaxCount));
  RETURN_IF_ERROR(
      check("sliding_window", g.sliding_window(), g.num_sliding_blocks() > 0 ? 1 : 0, kMaxCount));
  RETURN_IF_ERROR(check("num_slots", g.num_slots(), 1, 1 << 16));
  RETURN_IF_ERROR(check("max_context", g.max_context(), 2, kMaxCount));
  return check("max_step_tokens", g.max_step_tokens(), 1, kMaxCount);
}

absl::Status CheckServes(const proto::Description& served, const proto::Description& description) {
  const auto differs = [](const char* field, const auto& has, const auto& wants) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker has ", field, " ", has, ", served is ", wants));
  };
  if (description.model().weight_identity() != served.model().weight_identity()) {
    return differs("weight identity", description.model().weight_identity(),
                   served.model().weight_identity());
  }
  if (description.model().vocab_size() != served.model().vocab_size()) {
    return differs("vocab_size", description.model().vocab_size(), served.model().vocab_size());
  }
  if (description.geometry().block_size() != served.geometry().block_size()) {
    return differs("block_size", description.geometry().block_size(),
                   served.geometry().block_size());
  }
  return absl::OkStatus();
}

LengthLimit LimitOf(const proto::Geometry& geometry) {
  const int64_t num_tokens = KvPools::MaxSequenceLen(geometry);
  return {.num_tokens = num_tokens,
          .cause = num_tokens < geometry.max_context() ? LengthLimit::Cause::kKvBlocks
                                                       : LengthLimit::Cause::kContext};
}

WorkerPool::WorkerPool(std::vector<WorkerEndpoint> endpoints,
                       std::vector<WorkerListener*> listeners, RouterMetrics& metrics)
    : metrics_(metrics), listeners_(std::move(listeners)) {
  for (WorkerEndpoint& endpoint : endpoints) {
    configured_.insert(endpoint.address);
    replicas_.push_back(MakeReplica(static_cast<int>(replicas_.size()), std::move(endpoint)));
  }
}

Replica WorkerPool::MakeReplica(int replica_idx, WorkerEndpoint endpoint) {
  return {.replica_idx = replica_idx,
          .address = endpoint.address,
          .client = std::move(endpoint.client),
          .metrics = metrics_.ForReplica(endpoint.address),
          .length_limit = {},
          .backoff = kMinBackoff,
          .last_problem = {},
          .scheduler = nullptr,
          .stalls = {},
          .progress_at = {}};
}

std::vector<std::string> WorkerPool::SetListed(const std::vector<std::string>& addresses) {
  std::set<std::string> missing(addresses.begin(), addresses.end());
  for (Replica& replica : replicas_) {
    if (replica.state == Replica::State::kRetired) continue;
    replica.listed = missing.erase(replica.address) > 0 || configured_.contains(replica.address);
    if (!replica.listed && replica.state == Replica::State::kDown) Retire(replica);
  }
  return {missing.begin(), missing.end()};
}

int WorkerPool::FreePlace() const {
  const auto retired = std::find_if(replicas_.begin(), replicas_.end(), [](const Replica& r) {
    return r.state == Replica::State::kRetired;
  });
  return static_cast<int>(retired - replicas_.begin());
}

void WorkerPool::Add(WorkerEndpoint endpoint, WorkerListener* listener) {
  const auto place = static_cast<size_t>(FreePlace());
  LogInfo("worker_found", {{"worker", endpoint.address}});
  Replica replica = MakeReplica(static_cast<int>(place), std::move(endpoint));
  if (place == replicas_.size()) {
    replicas_.push_back(std::move(replica));
    listeners_.push_back(listener);
  } else {
    replicas_[place] = std::move(replica);
    listeners_[place] = listener;
  }
}

int WorkerPool::num_ready() const {
  return static_cast<int>(std::count_if(replicas_.begin(), replicas_.end(), [](const Replica& r) {
    return r.state == Replica::State::kReady;
  }));
}

LengthLimit WorkerPool::length_limit() const {
  LengthLimit longest;
  for (const Replica& replica : replicas_) {
    if (replica.state == Replica::State::kRetired) continue;
    if (replica.length_limit.num_tokens > longest.num_tokens) longest = replica.length_limit;
  }
  return longest;
}

Replica* WorkerPool::Find(int replica_idx, uint64_t connection_id) {
  Replica& replica = replicas_[static_cast<size_t>(replica_idx)];
  if (replica.connection_id != connection_id || replica.state == Replica::State::kDown ||
      replica.state == Replica::State::kRetired) {
    return nullptr;
  }
  return &replica;
}

bool WorkerPool::Tick(absl::Time now, bool want_files) {
  bool gave_up = false;
  for (Replica& replica : replicas_) {
    if (replica.state == Replica::State::kReady || replica.state == Replica::State::kRetired ||
        now < replica.act_at) {
      continue;
    }
    if (replica.state == Replica::State::kConnecting) {
      MarkDown(replica, absl::DeadlineExceededError("took too long to connect"), now);
      gave_up = true;
    } else {
      Connect(replica, now, want_files);
    }
  }
  return gave_up;
}

absl::Time WorkerPool::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Replica& replica : replicas_) {
    if (replica.state == Replica::State::kDown || replica.state == Replica::State::kConnecting) {
      next = std::min(next, replica.act_at);
    }
  }
  return next;
}

void WorkerPool::Connect(Replica& replica, absl::Time now, bool want_files) {
  replica.state = Replica::State::kConnecting;
  replica.connection_id = ++num_connections_;
  replica.first_try_at = std::min(replica.first_try_at, now);
  replica.act_at = now + kConnectTimeout;
  replica.client->Connect({.connection_id = replica.connection_id,
                           .want_files = want_files,
                           .listener = listeners_[static_cast<size_t>(replica.replica_idx)]});
}

void WorkerPool::MarkReady(Replica& replica, const SchedulerOptions& options) {
  replica.state = Replica::State::kReady;
  replica.backoff = kMinBackoff;
  replica.last_problem.clear();
  replica.warned = false;
  replica.was_ready_once = true;
  replica.scheduler = std::make_unique<Scheduler>(options);
  replica.length_limit = LimitOf(options.geometry);
  replica.stalls = {};
  replica.metrics.up.Set(1);
  replica.metrics.full_blocks.Set(options.geometry.num_full_blocks());
  replica.metrics.sliding_blocks.Set(options.geometry.num_sliding_blocks());
  LogInfo("worker_ready", {{"worker", replica.address},
                           {"full_blocks", options.geometry.num_full_blocks()},
                           {"sliding_blocks", options.geometry.num_sliding_blocks()},
                           {"slots", options.geometry.num_slots()}});
}

void WorkerPool::MarkDown(Replica& replica, const absl::Status& why, absl::Time now) {
  const bool was_ready = replica.state == Replica::State::kReady;
  if (was_ready) replica.metrics.losses.Add();
  std::string problem = why.ToString();
  const bool may_start = absl::IsUnavailable(why) && !replica.was_ready_once &&
                         now < replica.first_try_at + kStartGrace;
  if (was_ready || problem != replica.last_problem || (!may_start && !replica.warned)) {
    (may_start ? LogInfo : LogWarning)(was_ready ? "worker_lost" : "worker_unavailable",
                                       {{"worker", replica.address}, {"error", problem}});
    replica.warned = !may_start;
  }
  replica.last_problem = std::move(problem);
  replica.client->Disconnect();
  replica.scheduler.reset();
  replica.state = Replica::State::kDown;
  replica.metrics.up.Set(0);
  replica.act_at = now + replica.backoff;
  replica.backoff = std::min(replica.backoff * 2, kMaxBackoff);
  if (!replica.listed) Retire(replica);
}

void WorkerPool::Retire(Replica& replica) {
  LogInfo("worker_retired", {{"worker", replica.address}});
  replica.state = Replica::State::kRetired;
  metrics_.RemoveReplica(replica.address);
}

bool WorkerPool::MakeRoom(const Sequence& sequence) {
  // A suspect waits for a worker of its own, not for room.
  if (sequence.num_losses >= kSuspectLosses) return false;
  return std::any_of(replicas_.begin(), replicas_.end(), [&](Replica& replica) {
    return replica.state == Replica::State::kReady && replica.scheduler->MakeRoomFor(sequence);
  });
}

Replica* WorkerPool::Choose(const Sequence& sequence) {
  Replica* best = nullptr;
  int best_cached = 0;
  int64_t best_outstanding = 0;
  for (Replica& replica : replicas_) {
    if (replica.state != Replica::State::kReady) continue;
    // Two suspects in one worker would not tell which of them kills it.
    if (sequence.num_losses >= kSuspectLosses && HasSuspect(*replica.scheduler)) continue;
    const Scheduler::Probe probe = replica.scheduler->Examine(sequence);
    if (!probe.can_start) continue;
    const int64_t outstanding = replica.scheduler->num_outstanding_tokens();
    if (best != nullptr &&
        (probe.num_cached_tokens < best_cached ||
         (probe.num_cached_tokens == best_cached && outstanding >= best_outstanding))) {
      continue;
    }
    best = &replica;
    best_cached = probe.num_cached_tokens;
    best_outstanding = outstanding;
  }
  return best;
}

}  // namespace weightless::router
