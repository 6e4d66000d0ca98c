// What may be accepted now. State that the HTTP threads and the engine thread share: HTTP threads
// ask and take places in the bounded queue, the engine thread gives places back and says what the
// workers can hold.
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "router/dispatcher.h"
#include "router/request.h"

namespace weightless::router {

// Thread-safe.
class Admission {
 public:
  explicit Admission(int max_queued) : max_queued_(max_queued) {}

  // OK, kResourceExhausted (the queue has no `num_sequences` places, or too few for a key that has
  // some already) or kUnavailable (no ready replica, draining). A key that has some gets no more
  // places than it leaves free, so that one that floods keeps nobody out; without keys there is no
  // such bound.
  absl::Status Check(const std::string& key_id, int num_sequences) const;
  // Check, and the places are taken.
  absl::Status Enter(const std::string& key_id, int num_sequences);
  // Gives places back: sequences were placed on a replica for the first time, or ended before.
  void Leave(const std::string& key_id, int num_sequences);

  // Of the longest sequence that a known worker could run; 0 tokens before one is known.
  LengthLimit length_limit() const;
  // kInvalidArgument, naming the numbers, when no known worker could ever run the sequence.
  absl::Status CheckFits(const SequenceRequest& sequence) const;

  // How many workers are ready, and the tokens of the longest sequence that one of them could run.
  void SetReady(int num_ready, int64_t ready_len);
  void SetDraining();
  // A limit of 0 tokens, when no worker is known any more, leaves the one before.
  void SetLengthLimit(const LengthLimit& limit);

  int num_queued() const;

 private:
  absl::Status CheckLocked(const std::string& key_id, int num_sequences) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  int NumQueued(const std::string& key_id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const int max_queued_;
  mutable absl::Mutex mutex_;
  int num_queued_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> num_queued_by_key_ ABSL_GUARDED_BY(mutex_);  // those that have some
  int num_ready_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  LengthLimit length_limit_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weightless::router
