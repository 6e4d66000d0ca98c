#include "worker/engine_thread.h"

#include <pthread.h>

#include <optional>
#include <utility>

#include "common/concat.h"

namespace weightless::worker {

class EngineThread::Stream {
 public:
  Stream(std::string owner, StreamEvents stream_events)
      : events(std::move(stream_events)), owner_name(std::move(owner)) {}

  const StreamEvents events;
  std::atomic<bool> aborted = false;
  std::atomic<int> num_in_flight = 0;
  std::string owner_name;  // guarded by EngineThread::mutex_
};

EngineThread::EngineThread(Engine& engine)
    // Streams that broke leave their plans behind until the engine thread has skipped them.
    : engine_(engine), queue_(4 * kMaxPlansInFlight), thread_([this] { Loop(); }) {
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
  return owner_;
}

absl::Status EngineThread::Submit(const std::shared_ptr<Stream>& stream, proto::StepPlan plan) {
  if (!plan.owner().empty()) {
    absl::MutexLock lock(&mutex_);
    stream->owner_name = plan.owner();
  }
  if (stream->num_in_flight.fetch_add(1) >= kMaxPlansInFlight ||
      !queue_.Push({.stream = stream, .plan = std::move(plan)})) {
    return absl::ResourceExhaustedError(Concat("plans in flight exceed ", kMaxPlansInFlight));
  }
  return absl::OkStatus();
}

void EngineThread::Finish(const std::shared_ptr<Stream>& stream) {
  if (queue_.Push({.stream = stream, .plan = {}, .is_end = true})) return;
  Abort(stream);
  stream->events.on_end(absl::ResourceExhaustedError("the plan queue is full"));
}

void EngineThread::Abort(const std::shared_ptr<Stream>& stream) {
  if (stream->aborted.exchange(true)) return;
  // Before the lease is free, so that the engine frees this stream's slots before the next owner's
  // first plan. A full queue does no harm: the engine also resets when it sees another stream.
  (void)queue_.Push({.stream = stream, .plan = {}, .is_end = true});
  Release(stream);
}

void EngineThread::Loop() {
  std::shared_ptr<Stream> current;
  while (std::optional<Work> work = queue_.Pop(absl::InfiniteFuture())) {
    if (stopping_) return;
    if (work->stream != current) {
      engine_.Reset();
      current = work->stream;
    }
    if (!work->is_end) {
      if (!current->aborted) Run(current, work->plan);
      continue;
    }
    engine_.Reset();
    if (!current->aborted.exchange(true)) {
      Release(current);
      current->events.on_end(absl::OkStatus());
    }
    current.reset();
  }
}

void EngineThread::Run(const std::shared_ptr<Stream>& stream, const proto::StepPlan& plan) {
  absl::StatusOr<proto::StepResult> result = engine_.Step(plan);
  stream->num_in_flight.fetch_sub(1);
  if (result.ok()) {
    stream->events.on_result(std::move(*result));
    return;
  }
  engine_.Reset();
  if (stream->aborted.exchange(true)) return;
  Release(stream);
  stream->events.on_end(result.status());
}

void EngineThread::Release(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mutex_);
  if (owner_ == stream) owner_ = nullptr;
}

}  // namespace weightless::worker
