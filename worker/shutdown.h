// SIGTERM and SIGINT as a call to stop.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weightless::worker {

// Made first in main, before any other thread, so that all of them have the signals blocked. A
// signal before Wait ends the process with status 0; after it, main has `grace` to leave before the
// same happens.
class ShutdownSignal {
 public:
  explicit ShutdownSignal(absl::Duration grace);
  ~ShutdownSignal();

  // Blocks until a signal comes.
  void Wait();

 private:
  void Watch();

  const absl::Duration grace_;
  absl::Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;  // main is in Wait
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // main is done
  std::thread thread_;
};

}  // namespace weightless::worker
