#include "router/http_wake.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace weightless::router {

void Waker::Wake() {
  if (pending_.exchange(true)) return;
  absl::MutexLock lock(&mutex_);
  if (io_ == nullptr) return;
  boost::asio::post(*io_, [self = shared_from_this()] { self->Run(); });
}

void Waker::Run() {
  pending_ = false;
  const std::function<void()> on_wake = on_wake_;  // which Detach may clear under us
  if (on_wake) on_wake();
}

void Waker::Detach() {
  on_wake_ = nullptr;
  absl::MutexLock lock(&mutex_);
  io_ = nullptr;
}

}  // namespace weightless::router
