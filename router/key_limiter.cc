#include "router/key_limiter.h"

#include "common/concat.h"
#include "router/api_error.h"

namespace weightless::router {

absl::StatusOr<KeyLimiter::Lease> KeyLimiter::Acquire(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  int& count = num_requests_[key];
  if (max_requests_ > 0 && count >= max_requests_) {
    return ErrorWithCode(
        absl::StatusCode::kResourceExhausted, "rate_limit_exceeded",
        Concat("the caller has ", count, " requests under way; the limit is ", max_requests_));
  }
  ++count;
  return Lease(this, key);
}

void KeyLimiter::Release(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto entry = num_requests_.find(key);
  if (--entry->second == 0) num_requests_.erase(entry);
}

}  // namespace weightless::router
