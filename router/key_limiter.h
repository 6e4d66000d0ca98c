// What each API key may use: requests under way, requests and tokens per minute.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"

namespace weightless::router {

// Of one key; 0: no limit.
struct KeyLimits {
  int requests_under_way = 0;
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts, cached or not, and of answers
};

// Thread-safe. Outlives its leases. The limits per minute are token buckets that hold a minute's
// worth: what was not used in the last minute may come at once.
class KeyLimiter {
 public:
  // One request's place, given back by Release or on destruction.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : limiter_(std::exchange(other.limiter_, nullptr)), key_(std::move(other.key_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() { Release(); }
    // Takes from the tokens per minute, beyond what is left if need be: the key's next request then
    // waits for longer. Not after Release.
    void Charge(int64_t num_tokens) { limiter_->Charge(key_, num_tokens); }
    void Release() {
      if (limiter_ != nullptr) std::exchange(limiter_, nullptr)->Release(key_);
    }

   private:
    friend class KeyLimiter;
    Lease(KeyLimiter* limiter, std::string key) : limiter_(limiter), key_(std::move(key)) {}

    KeyLimiter* limiter_;
    std::string key_;
  };

  KeyLimiter(const KeyLimits& limits, const Clock& clock, RouterMetrics& metrics)
      : limits_(limits), clock_(clock), metrics_(metrics) {}

  // Counts a request of the key. kResourceExhausted `rate_limit_exceeded` (429) names the key and
  // the limit it is at, and after which time the request would pass.
  absl::StatusOr<Lease> Acquire(const std::string& key);

 private:
  // A bucket that refills in a minute, as the time at which it is full again. Amounts are the time
  // they take to refill.
  class Bucket {
   public:
    // How long until `amount` is there.
    absl::Duration WaitFor(absl::Duration amount, absl::Time now) const {
      return std::max(full_at_, now) + amount - absl::Minutes(1) - now;
    }
    void Take(absl::Duration amount, absl::Time now) {
      full_at_ = std::max(full_at_, now) + amount;
    }

   private:
    absl::Time full_at_ = absl::InfinitePast();
  };
  struct Account {
    int num_under_way = 0;
    Bucket requests, tokens;
  };

  absl::Status Check(const std::string& key, const Account& account, absl::Time now) const;
  void Charge(const std::string& key, int64_t num_tokens);
  void Release(const std::string& key);

  const KeyLimits limits_;
  const Clock& clock_;
  RouterMetrics& metrics_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weightless::router
