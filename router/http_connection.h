// One client connection of the HTTP server.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "router/http_message.h"
#include "router/http_options.h"

namespace boost::asio {
class io_context;
class thread_pool;
}  // namespace boost::asio

namespace weightless::router {

class TlsContext;

// How many requests are being answered. Thread-safe.
class ActiveRequests {
 public:
  // One of them, as long as it lives.
  class Entry {
   public:
    explicit Entry(ActiveRequests& active) : active_(active) { active_.Add(1); }
    ~Entry() { active_.Add(-1); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    ActiveRequests& active_;
  };

  // False when some are still there at the deadline.
  bool WaitUntilNone(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_active_ == 0; };
    return mutex_.AwaitWithDeadline(absl::Condition(&none), deadline);
  }

 private:
  void Add(int change) {
    absl::MutexLock lock(&mutex_);
    num_active_ += change;
  }

  absl::Mutex mutex_;
  int num_active_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What all connections of a server share.
struct HttpShared {
  void CountResponse(int status) {
    (status < 400   ? metrics.responses_2xx
     : status < 500 ? metrics.responses_4xx
                    : metrics.responses_5xx)
        .Add();
  }

  const HttpOptions& options;
  HttpHandler& handler;
  const Clock& clock;
  RouterMetrics& metrics;
  const TlsContext* tls;                // null: in the clear
  boost::asio::thread_pool& slow_pool;  // handles big bodies, so that they hold nobody up
  std::atomic<bool> draining = false;   // connections close after their answer
  std::atomic<int64_t> body_bytes = 0;  // of request bodies in memory
  ActiveRequests active{};
};

// Owned by the thread that runs its io_context; every call is made there. An interface only to keep
// the HTTP library out of this header.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  // Acts on what is overdue.
  virtual void Tick(absl::Time now) = 0;
  // Ends it as if the client had left.
  virtual void Close() = 0;
};

// Serves a connected, non-blocking socket, which it takes over, from the next turn of `io` on.
// `on_end` is called once, when all is done.
std::shared_ptr<HttpConnection> ServeConnection(boost::asio::io_context& io, int socket,
                                                HttpShared& shared,
                                                std::function<void(HttpConnection*)> on_end);

}  // namespace weightless::router
