// One generation: what was asked, what is known of it, and, while a replica runs it, where it
// stands there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "router/prefix_hash.h"
#include "router/request.h"
#include "router/token_stream.h"

namespace weightless::router {

struct FairAccount;  // waiting_queue.h

// The blocks a sequence holds in one pool, by logical index (position / block size). Those before
// `begin` are given back (sliding window) and their entries meaningless.
struct BlockTable {
  std::vector<uint32_t> blocks;
  int begin = 0;
  int num_sent = 0;  // entries the worker knows

  int end() const { return static_cast<int>(blocks.size()); }
};

// A sequence's state on one replica. Positions count what is planned: plans in flight included.
struct Residence {
  enum class State { kRunning, kPreempted };

  State state = State::kRunning;
  uint32_t slot = 0;
  bool announced = false;       // the worker has its Admit
  int num_known = 0;            // tokens it was admitted with; prefill computes these
  int num_computed = 0;         // positions whose K and V are computed, or found in the cache
  int num_committed = 0;        // of these, by steps whose results are here
  int num_run = 0;              // tokens it computes in the plan being made
  int num_in_flight = 0;        // plans without a result that run it
  int num_prompt_logprobs = 0;  // arrived since it was admitted
  int num_published = 0;        // blocks offered to the prefix cache
  BlockTable full;
  BlockTable sliding;
};

// Owned by the engine thread, by the queue or by one scheduler.
struct Sequence {
  uint64_t sequence_id = 0;  // by arrival
  SequenceRequest request;   // its prompt has moved to `tokens`
  std::shared_ptr<TokenStream> stream;
  std::shared_ptr<FairAccount> account;  // of its key; shared with the queue
  absl::Time submitted_at;
  absl::Time placed_at;  // on a replica, for the first time

  std::vector<int32_t> tokens;  // prompt, then committed output
  int num_prompt_tokens = 0;
  PrefixHash root_hash;
  std::vector<PrefixHash> hashes;  // of the full blocks of `tokens`

  std::optional<int> num_cached_tokens;  // prompt tokens found at the first admission
  int num_counted_tokens = 0;            // leading tokens computed at least once, for metrics
  std::vector<proto::Logprobs> prompt_logprobs;  // until the first token goes out
  int num_prompt_logprobs = 0;                   // received, of num_prompt_tokens - 1
  int num_losses = 0;                            // workers lost in a row, without a token between

  Residence on;

  // Whether a replica has ever taken it.
  bool was_placed() const { return num_cached_tokens.has_value(); }
  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  // Prompt and all the output there may be.
  int max_len() const { return num_prompt_tokens + request.max_tokens; }
  bool wants_prompt_logprobs() const {
    return request.prompt_logprobs.has_value() && num_prompt_logprobs < num_prompt_tokens - 1;
  }
};

// A sequence ready for the queue, the hashes of its prompt's full blocks computed.
std::unique_ptr<Sequence> MakeSequence(SequenceRequest request, std::shared_ptr<TokenStream> stream,
                                       const proto::Description& served,
                                       const PrefixHasher& hasher);

}  // namespace weightless::router
