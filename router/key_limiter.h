// How many requests each API key may have under way.
#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace weightless::router {

// Thread-safe. Outlives its leases.
class KeyLimiter {
 public:
  // One request's place, given back by Release or on destruction.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : limiter_(std::exchange(other.limiter_, nullptr)), key_(std::move(other.key_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() { Release(); }
    void Release() {
      if (limiter_ != nullptr) std::exchange(limiter_, nullptr)->Release(key_);
    }

   private:
    friend class KeyLimiter;
    Lease(KeyLimiter* limiter, std::string key) : limiter_(limiter), key_(std::move(key)) {}

    KeyLimiter* limiter_;
    std::string key_;
  };

  // max_requests 0: no limit.
  explicit KeyLimiter(int max_requests) : max_requests_(max_requests) {}

  // kResourceExhausted `rate_limit_exceeded` (429) when the key has as many as it may.
  absl::StatusOr<Lease> Acquire(const std::string& key);

 private:
  void Release(const std::string& key);

  const int max_requests_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, int> num_requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weightless::router
