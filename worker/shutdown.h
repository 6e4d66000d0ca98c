// SIGTERM and SIGINT as a call to stop, SIGHUP as one to read files again.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weightless::worker {

// Made first in main, before any other thread, so that all of them have the signals blocked. A
// call to stop before Wait ends the process with status 0; after it, main has `grace` to leave
// before the same happens.
class ShutdownSignal {
 public:
  explicit ShutdownSignal(absl::Duration grace);
  ~ShutdownSignal();

  // Blocks until a call to stop comes. Calls `on_hangup`, in this thread, for each SIGHUP, or once
  // for several that came at the same time; one from before Wait counts.
  void Wait(const std::function<void()>& on_hangup);

 private:
  void Watch();

  const absl::Duration grace_;
  absl::Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;  // main is in Wait
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool hung_up_ ABSL_GUARDED_BY(mutex_) = false;  // not told to main yet
  bool left_ ABSL_GUARDED_BY(mutex_) = false;     // main is done
  std::thread thread_;
};

}  // namespace weightless::worker
