#include "router/key_limiter.h"

#include <algorithm>

#include "common/concat.h"
#include "common/status.h"
#include "router/api_error.h"

namespace weightless::router {
namespace {

// The time in which a bucket of `limit` a minute gets `amount`.
absl::Duration RefillTime(int64_t amount, int64_t limit) {
  return absl::Minutes(1) * amount / limit;
}

std::string Caller(const std::string& key) {
  return key.empty() ? "the server without API keys" : Concat("the key ", Quoted(key));
}

absl::Status Exceeded(std::string_view message, absl::Duration wait) {
  return WithRetryAfter(
      ErrorWithCode(absl::StatusCode::kResourceExhausted, "rate_limit_exceeded", message), wait);
}

absl::Status UsedUp(const std::string& key, int64_t limit, std::string_view what,
                    absl::Duration wait) {
  return Exceeded(Concat(Caller(key), " has used up its ", limit, " ", what,
                         " per minute; the next request passes in ", RetrySeconds(wait), " s"),
                  wait);
}

}  // namespace

absl::Status KeyLimiter::Check(const std::string& key, const Account& account,
                               absl::Time now) const {
  const auto [max_under_way, max_requests, max_tokens] = limits_;
  if (max_under_way > 0 && account.num_under_way >= max_under_way) {
    metrics_.refused_requests_under_way.Add();
    return Exceeded(Concat(Caller(key), " has ", account.num_under_way,
                           " requests under way; the limit is ", max_under_way),
                    absl::Seconds(1));
  }
  absl::Duration request_wait, token_wait;
  if (max_requests > 0) {
    request_wait = account.requests.WaitFor(RefillTime(1, max_requests), now);
  }
  if (max_tokens > 0) token_wait = account.tokens.WaitFor(absl::ZeroDuration(), now);
  if (std::max(request_wait, token_wait) <= absl::ZeroDuration()) return absl::OkStatus();
  if (request_wait > token_wait) {
    metrics_.refused_requests_per_minute.Add();
    return UsedUp(key, max_requests, "requests", request_wait);
  }
  metrics_.refused_tokens_per_minute.Add();
  return UsedUp(key, max_tokens, "tokens", token_wait);
}

absl::StatusOr<KeyLimiter::Lease> KeyLimiter::Acquire(const std::string& key) {
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[key];
  RETURN_IF_ERROR(Check(key, account, now));
  ++account.num_under_way;
  if (limits_.requests_per_minute > 0) {
    account.requests.Take(RefillTime(1, limits_.requests_per_minute), now);
  }
  return Lease(this, key);
}

void KeyLimiter::Charge(const std::string& key, int64_t num_tokens) {
  if (limits_.tokens_per_minute == 0) return;
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  accounts_[key].tokens.Take(RefillTime(num_tokens, limits_.tokens_per_minute), now);
}

void KeyLimiter::Release(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  --accounts_[key].num_under_way;
}

}  // namespace weightless::router
