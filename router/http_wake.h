// Waking a connection's coroutine from other threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace boost::asio {
class io_context;
}

namespace weightless::router {

// Held by a connection and by the streams that wake it, since either may go first.
class Waker : public std::enable_shared_from_this<Waker> {
 public:
  // `on_wake` runs on the thread of `io`.
  Waker(boost::asio::io_context& io, std::function<void()> on_wake)
      : io_(&io), on_wake_(std::move(on_wake)) {}

  // Thread-safe. Calls that come before on_wake has run count as one.
  void Wake();
  // On the thread of `io`: on_wake is not called any more, and `io` may go.
  void Detach();

 private:
  void Run();

  std::atomic<bool> pending_ = false;
  absl::Mutex mutex_;
  boost::asio::io_context* io_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_wake_;  // used on the thread of `io` only
};

}  // namespace weightless::router
