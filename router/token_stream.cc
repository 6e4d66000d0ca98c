#include "router/token_stream.h"

#include <iterator>
#include <utility>

#include "common/check.h"

namespace weightless::router {

namespace {

void Append(TokenBatch& to, TokenBatch& from) {
  if (to.tokens.empty()) {
    to.tokens = std::move(from.tokens);
    to.arrived_at = from.arrived_at;
  } else {
    to.tokens.insert(to.tokens.end(), std::make_move_iterator(from.tokens.begin()),
                     std::make_move_iterator(from.tokens.end()));
  }
  if (!from.prompt_logprobs.empty()) to.prompt_logprobs = std::move(from.prompt_logprobs);
  if (from.num_cached_tokens != 0) to.num_cached_tokens = from.num_cached_tokens;
  if (from.placed_at != absl::Time()) to.placed_at = from.placed_at;
  if (from.end.has_value()) {
    to.end = from.end;
    to.status = std::move(from.status);
  }
}

}  // namespace

void TokenStream::Put(TokenBatch batch) {
  bool must_wake = false;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    CHECK(!ended_);
    ended_ = batch.end.has_value();
    Append(pending_, batch);
    must_wake = !std::exchange(has_pending_, true);
  }
  if (must_wake) wake_();
}

void TokenStream::PutToken(int32_t token, absl::Time arrived_at) {
  bool must_wake = false;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    CHECK(!ended_);
    if (pending_.tokens.empty()) pending_.arrived_at = arrived_at;
    pending_.tokens.push_back({.token = token, .logprobs = std::nullopt});
    must_wake = !std::exchange(has_pending_, true);
  }
  if (must_wake) wake_();
}

TokenBatch TokenStream::Take() {
  absl::MutexLock lock(&mutex_);
  has_pending_ = false;
  return std::exchange(pending_, {});
}

void TokenStream::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool TokenStream::closed() const {
  absl::MutexLock lock(&mutex_);
  return closed_;
}

}  // namespace weightless::router
