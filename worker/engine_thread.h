// The one thread that runs the engine, and the lease on it: at most one stream of plans owns the
// worker at a time. It keeps as many steps launched as the engine allows: a plan that is there is
// launched before the result of an earlier one is waited for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/bounded_queue.h"
#include "common/worker_metrics.h"
#include "proto/worker.pb.h"
#include "worker/engine.h"

namespace weightless::worker {

// Plans that one stream may have sent and not been answered for, and the bytes of those that no
// step has been launched for.
inline constexpr int kMaxPlansInFlight = 1024;
inline constexpr int64_t kMaxQueuedPlanBytes = int64_t{256} << 20;

// What a stream hears. Called by the engine thread, and by Finish when the queue is full; may call
// back into EngineThread.
struct StreamEvents {
  std::function<void(proto::StepResult)> on_result;
  // The last event: OK after Finish, else why a plan was refused. The lease is already free. Not
  // called after Abort.
  std::function<void(const absl::Status&)> on_end;
};

// Thread-safe.
class EngineThread {
 public:
  class Stream;

  // Both outlive this.
  EngineThread(Engine& engine, WorkerMetrics& metrics);
  // Ends after the step under way.
  ~EngineThread();

  // Takes the lease for a stream. kFailedPrecondition, naming the owner, while another has it.
  // `owner` is its name until a plan brings a better one.
  absl::StatusOr<std::shared_ptr<Stream>> Open(std::string owner, StreamEvents events);

  // Queues a plan. kResourceExhausted, naming the limit, when the stream is too far ahead.
  absl::Status Submit(const std::shared_ptr<Stream>& stream, proto::StepPlan plan);

  // No more plans: on_end follows when the queued ones are done.
  void Finish(const std::shared_ptr<Stream>& stream);

  // The stream broke: its queued plans are dropped, and the lease is free when this returns.
  // Idempotent.
  void Abort(const std::shared_ptr<Stream>& stream);

 private:
  struct Work {
    std::shared_ptr<Stream> stream;
    proto::StepPlan plan;
    int64_t num_bytes = 0;  // of the plan
    bool is_end = false;    // instead of a plan
  };

  void Loop();
  absl::Time PlanDeadline();
  void Do(const Work& work);
  void Launch(const proto::StepPlan& plan);
  void Collect();
  void Count(const CollectedStep& step, absl::Duration waited);
  void Reset();
  void Release(const std::shared_ptr<Stream>& stream);

  Engine& engine_;
  WorkerMetrics& metrics_;
  // Of the engine thread.
  std::shared_ptr<Stream> current_;    // whose steps the engine has in flight
  std::deque<absl::Duration> waited_;  // for the plan of each of them, with nothing to do
  absl::Time idle_since_;              // the end of the last step

  BoundedQueue<Work> queue_;
  std::atomic<bool> stopping_ = false;
  absl::Mutex mutex_;
  std::shared_ptr<Stream> owner_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weightless::worker
