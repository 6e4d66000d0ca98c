// What may be accepted now. The one piece of state that the HTTP threads and the engine thread
// share: HTTP threads ask and take places in the bounded queue, the engine thread gives places back
// and says what the workers can hold.
#pragma once

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.pb.h"
#include "router/request.h"

namespace weightless::router {

// Thread-safe.
class Admission {
 public:
  explicit Admission(int max_queued) : max_queued_(max_queued) {}

  // OK, kResourceExhausted (the queue has no `num_sequences` places) or kUnavailable (no ready
  // replica, draining).
  absl::Status Check(int num_sequences) const;
  // Check, and the places are taken.
  absl::Status Enter(int num_sequences);
  // Gives places back: sequences were placed on a replica for the first time, or ended before.
  void Leave(int num_sequences);

  // kInvalidArgument, naming the numbers, when no worker known could ever hold the sequence.
  absl::Status CheckFits(const SequenceRequest& sequence) const;

  void SetNumReady(int num_ready);
  void SetDraining();
  // What a worker can hold, from its description; remembered while it is away.
  void SetGeometry(int replica_idx, const proto::Geometry& geometry);

  int num_queued() const;

 private:
  absl::Status CheckLocked(int num_sequences) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const int max_queued_;
  mutable absl::Mutex mutex_;
  int num_queued_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_ready_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, proto::Geometry> geometries_ ABSL_GUARDED_BY(mutex_);  // by replica_idx
};

}  // namespace weightless::router
