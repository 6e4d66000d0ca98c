// A queue of fixed capacity between threads.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weightless {

// Thread-safe. Push never blocks: it refuses when the queue is full or closed, and the caller
// answers for that. After Close() what is queued can still be popped.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; the item is then untouched.
  [[nodiscard]] bool Push(T&& item) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Blocks until an item is there (returns it), the deadline passes or the queue is closed and
  // empty (nullopt).
  std::optional<T> Pop(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithDeadline(absl::Condition(this, &BoundedQueue::Ready), deadline);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Takes everything that is queued, after waiting as Pop does.
  std::deque<T> PopAll(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithDeadline(absl::Condition(this, &BoundedQueue::Ready), deadline);
    return std::exchange(items_, {});
  }

  // Drops what meets the condition; the others keep their order.
  template <typename Condition>
  void RemoveIf(Condition condition) {
    std::deque<T> removed;  // destroyed without the lock
    absl::MutexLock lock(&mutex_);
    std::deque<T> kept;
    for (T& item : items_) (condition(item) ? removed : kept).push_back(std::move(item));
    items_ = std::move(kept);
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  bool Ready() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return closed_ || !items_.empty(); }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weightless
