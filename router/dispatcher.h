// What the HTTP side sees of everything behind it. Implemented by EngineLoop, and by a fake in the
// HTTP tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/tokenizer.h"
#include "proto/worker.pb.h"
#include "router/request.h"
#include "router/token_stream.h"

namespace weightless::router {

// The model all replicas serve. Immutable.
struct ServedModel {
  proto::Description description;            // of the first worker that was ready
  std::map<std::string, std::string> files;  // as from ModelFiles
  std::unique_ptr<const model::Tokenizer> tokenizer;
  absl::Time loaded_at;
};

// A snapshot for /ready and /v1/loads.
struct ReplicaLoad {
  std::string address;
  bool ready = false;
  int num_running = 0;
  int num_waiting = 0;  // of the running: still in prefill
  int64_t num_outstanding_tokens = 0;
  int64_t full_blocks_used = 0, full_blocks_total = 0;
  int64_t sliding_blocks_used = 0, sliding_blocks_total = 0;
};
struct Loads {
  std::vector<ReplicaLoad> replicas;
  int num_queued = 0;  // accepted, not placed
};

// The most tokens, prompt and output, that a sequence may have, and what it is that ends there.
struct LengthLimit {
  enum class Cause { kContext, kKvBlocks };

  int64_t num_tokens = 0;
  Cause cause = Cause::kContext;
  int64_t num_ready_tokens = 0;  // of these, on a worker that is ready now; 0: on none
};

// Thread-safe.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  // Null until a worker has been ready once.
  virtual std::shared_ptr<const ServedModel> model() const = 0;

  // Whether `num_sequences` more of a key would be accepted now: OK, kResourceExhausted (the queue
  // is full, or the key's part of it) or kUnavailable (no ready replica, draining). Cheap; asked
  // before templating.
  virtual absl::Status Admit(const std::string& key_id, int num_sequences) const = 0;

  // Of the longest sequence that a worker could run; remembered while the worker is away.
  virtual LengthLimit length_limit() const = 0;

  // Queues the sequences, all or none, with the errors of Admit. streams[i] belongs to
  // sequences[i]. Each stream gets exactly one end, unless it is closed first.
  virtual absl::Status Submit(std::vector<SequenceRequest> sequences,
                              std::vector<std::shared_ptr<TokenStream>> streams) = 0;

  // Call after TokenStream::Close, so that the engine thread looks.
  virtual void NotifyClosed() = 0;

  virtual Loads loads() const = 0;

  // Refuses new work (kUnavailable), lets what runs finish until the deadline, then ends the rest
  // with an error. Blocks until everything ended.
  virtual void Drain(absl::Time deadline) = 0;
};

}  // namespace weightless::router
