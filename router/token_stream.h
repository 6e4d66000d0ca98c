// One sequence's channel from the engine thread to the HTTP side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace weightless::router {

enum class EndReason {
  kStop,    // the last token is one of the stop ids
  kLength,  // max_tokens or the context is reached
  kError,   // see status
};

struct TokenEvent {
  int32_t token = -1;
  std::optional<proto::Logprobs> logprobs;
};

// What has arrived since the last Take.
struct TokenBatch {
  std::vector<TokenEvent> tokens;
  std::vector<proto::Logprobs>
      prompt_logprobs;        // complete once the first token is there; position 1 on
  int num_cached_tokens = 0;  // prompt tokens found in the prefix cache; valid with the first token
  absl::Time placed_at;       // on a replica for the first time; valid with the first token
  absl::Time arrived_at;      // when the result that brought tokens[0] was here
  std::optional<EndReason> end;  // nothing follows
  absl::Status status;           // with kError
};

// Thread-safe. The engine thread puts, one consumer takes. Held by both sides (shared_ptr), because
// either may go first.
class TokenStream {
 public:
  // `wake` is called, on the engine thread and without a lock held, when the stream turns from
  // empty to non-empty; it must only post. It is not called again before the next Take.
  explicit TokenStream(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Engine side. Nothing is put after an end; what is put after Close is dropped.
  void Put(TokenBatch batch);
  // Put of one token without logprobs: what nearly every step of every sequence needs.
  void PutToken(int32_t token, absl::Time arrived_at);

  // Consumer side. Empty when nothing is there.
  TokenBatch Take();
  // The consumer wants no more: it left (abort), or it found a stop string (stop). The engine frees
  // the blocks within a step.
  void Close();
  bool closed() const;

 private:
  const std::function<void()> wake_;
  mutable absl::Mutex mutex_;
  TokenBatch pending_ ABSL_GUARDED_BY(mutex_);
  bool has_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weightless::router
