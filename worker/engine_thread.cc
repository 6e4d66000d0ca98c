#include "worker/engine_thread.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "common/concat.h"

namespace weightless::worker {
namespace {

// Between looks at a step that computes, with no plan to launch.
constexpr absl::Duration kPollInterval = absl::Microseconds(20);
// The owner's plans, and a few that came after their stream broke.
constexpr int kQueueCapacity = 2 * kMaxPlansInFlight;

absl::Status QueueIsFull() {
  return absl::ResourceExhaustedError(
      Concat("the queue of ", kQueueCapacity, " plans is full, or the worker stops"));
}

}  // namespace

class EngineThread::Stream {
 public:
  Stream(std::string owner, StreamEvents stream_events)
      : events(std::move(stream_events)), owner_name(std::move(owner)) {}

  const StreamEvents events;
  std::atomic<bool> aborted = false;
  std::atomic<int> num_in_flight = 0;
  std::atomic<int64_t> num_queued_bytes = 0;
  std::string owner_name;  // guarded by EngineThread::mutex_
};

EngineThread::EngineThread(Engine& engine, WorkerMetrics& metrics)
    : engine_(engine), metrics_(metrics), queue_(kQueueCapacity), thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), "engine");
}

EngineThread::~EngineThread() {
  stopping_ = true;
  queue_.Close();
  thread_.join();
}

absl::StatusOr<std::shared_ptr<EngineThread::Stream>> EngineThread::Open(std::string owner,
                                                                         StreamEvents events) {
  absl::MutexLock lock(&mutex_);
  if (owner_ != nullptr) {
    return absl::FailedPreconditionError(
        Concat("the worker is owned by ", Quoted(owner_->owner_name)));
  }
  owner_ = std::make_shared<Stream>(std::move(owner), std::move(events));
  metrics_.owned.Set(1);
  return owner_;
}

absl::Status EngineThread::Submit(const std::shared_ptr<Stream>& stream, proto::StepPlan plan) {
  if (!plan.owner().empty()) {
    absl::MutexLock lock(&mutex_);
    stream->owner_name = plan.owner();
  }
  if (stream->num_in_flight.fetch_add(1) >= kMaxPlansInFlight) {
    return absl::ResourceExhaustedError(Concat("plans in flight exceed ", kMaxPlansInFlight));
  }
  const auto num_bytes = static_cast<int64_t>(plan.ByteSizeLong());
  if (stream->num_queued_bytes.fetch_add(num_bytes) + num_bytes > kMaxQueuedPlanBytes) {
    return absl::ResourceExhaustedError(
        Concat("queued plans exceed ", kMaxQueuedPlanBytes, " bytes"));
  }
  if (queue_.Push({.stream = stream, .plan = std::move(plan), .num_bytes = num_bytes})) {
    return absl::OkStatus();
  }
  return QueueIsFull();
}

void EngineThread::Finish(const std::shared_ptr<Stream>& stream) {
  if (queue_.Push({.stream = stream, .plan = {}, .is_end = true})) return;
  if (stream->aborted) return;
  Abort(stream);
  stream->events.on_end(QueueIsFull());
}

void EngineThread::Abort(const std::shared_ptr<Stream>& stream) {
  if (stream->aborted.exchange(true)) return;
  queue_.RemoveIf([&](const Work& work) { return work.stream == stream; });
  // Before the lease is free, so that the engine frees this stream's slots before the next owner's
  // first plan. A full queue does no harm: the engine also resets when it sees another stream.
  (void)queue_.Push({.stream = stream, .plan = {}, .is_end = true});
  Release(stream);
}

void EngineThread::Loop() {
  while (!stopping_) {
    if (engine_.can_launch()) {
      if (const std::optional<Work> work = queue_.Pop(PlanDeadline())) {
        if (!stopping_) Do(*work);
        continue;
      }
      if (engine_.num_in_flight() == 0) return;  // the queue is closed
      if (!engine_.is_step_done()) continue;
    }
    Collect();
  }
}

// Until when to wait for a plan: as long as there is no result to send.
absl::Time EngineThread::PlanDeadline() {
  if (engine_.num_in_flight() == 0) return absl::InfiniteFuture();
  return engine_.is_step_done() ? absl::InfinitePast() : absl::Now() + kPollInterval;
}

void EngineThread::Do(const Work& work) {
  work.stream->num_queued_bytes.fetch_sub(work.num_bytes);
  if (work.stream != current_) {
    if (work.stream->aborted) return;  // it came late, and another may own the engine by now
    Reset();
    current_ = work.stream;
  }
  if (!work.is_end) {
    if (!current_->aborted) Launch(work.plan);
    return;
  }
  if (!current_->aborted) {
    while (engine_.num_in_flight() > 0) Collect();
  }
  Reset();
  if (!current_->aborted.exchange(true)) {
    Release(current_);
    current_->events.on_end(absl::OkStatus());
  }
  current_.reset();
}

void EngineThread::Launch(const proto::StepPlan& plan) {
  const absl::Duration waited =
      engine_.num_in_flight() == 0 ? absl::Now() - idle_since_ : absl::ZeroDuration();
  const absl::Status status = engine_.Launch(plan);
  if (status.ok()) {
    waited_.push_back(waited);
    return;
  }
  while (engine_.num_in_flight() > 0) Collect();
  current_->num_in_flight.fetch_sub(1);
  metrics_.rejected_plans.Add();
  Reset();
  if (current_->aborted.exchange(true)) return;
  Release(current_);
  current_->events.on_end(status);
}

void EngineThread::Collect() {
  CollectedStep step = engine_.Collect();
  current_->num_in_flight.fetch_sub(1);
  Count(step, waited_.front());
  waited_.pop_front();
  current_->events.on_result(std::move(step.result));
  idle_since_ = absl::Now();
}

void EngineThread::Count(const CollectedStep& step, absl::Duration waited) {
  const proto::StepResult& result = step.result;
  metrics_.slots_used.Set(engine_.num_slots_used());
  if (result.num_tokens() == 0) return;
  metrics_.workspace_bytes.Set(static_cast<double>(engine_.workspace_bytes()));
  metrics_.allocated_bytes.Set(static_cast<double>(engine_.allocated_bytes()));
  metrics_.step_seconds.Observe(static_cast<double>(result.compute_ns()) * 1e-9);
  metrics_.step_sequences.Observe(step.num_sequences);
  metrics_.step_tokens.Observe(result.num_tokens());
  metrics_.computed_tokens.Add(result.num_tokens());
  const auto num_sampled = std::count_if(result.slots().begin(), result.slots().end(),
                                         [](const auto& slot) { return slot.has_token(); });
  metrics_.sampled_tokens.Add(static_cast<double>(num_sampled));
  // Before a step that brings only new sequences there was nothing to do.
  if (step.continues) metrics_.wait_seconds.Add(std::max(0.0, absl::ToDoubleSeconds(waited)));
}

void EngineThread::Reset() {
  engine_.Reset();
  waited_.clear();
  metrics_.slots_used.Set(0);
}

void EngineThread::Release(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mutex_);
  if (owner_ != stream) return;
  owner_ = nullptr;
  metrics_.owned.Set(0);
}

}  // namespace weightless::worker
