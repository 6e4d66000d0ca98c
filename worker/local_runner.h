// Runs sequences on an engine in this process, without a router: for one-off generation,
// measurements and tests. Every sequence gets all its blocks when it is added, and prompts are
// prefilled in the order they came; there is no queue, no prefix cache and no preemption.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "worker/engine.h"

namespace weightless::worker {

struct LocalSequence {
  std::vector<int32_t> tokens = {};  // the prompt; 1 .. max_context
  int max_tokens = 1;                // output tokens; its positions get blocks now
  proto::Sampling sampling = {};     // stop_token_ids end it
  std::optional<uint32_t> prompt_logprobs = {};
};

// Owned by the engine's thread. The engine outlives it and has no other user until it is gone.
class LocalRunner {
 public:
  explicit LocalRunner(Engine& engine);
  ~LocalRunner() { engine_.Reset(); }
  LocalRunner(const LocalRunner&) = delete;
  LocalRunner& operator=(const LocalRunner&) = delete;

  // The slot of the new sequence, which takes part from the next step on. kResourceExhausted when
  // no slot or too few blocks are free.
  absl::StatusOr<int> Add(LocalSequence sequence);

  // One step: every sequence that has its prompt computed decodes a token, and prompts share what
  // is left of max_step_tokens. A sequence that ended or has its max_tokens is removed, and its
  // slot is free when this returns.
  absl::StatusOr<proto::StepResult> Step();

  bool idle() const { return running_.empty(); }
  // Whether Add would find a slot and blocks for so many tokens.
  bool HasRoomFor(int num_tokens) const;

 private:
  struct Running {
    LocalSequence sequence;
    int num_prefilled = 0;
    int num_output = 0;
    std::vector<uint32_t> full_blocks;
    std::vector<uint32_t> sliding_blocks;
  };

  void Remove(std::map<int, Running>::iterator it);

  Engine& engine_;
  const proto::Geometry geometry_;
  std::map<int, Running> running_;  // by slot
  std::vector<int> prefill_order_;  // slots whose prompts are not computed yet
  std::vector<int> free_slots_;
  std::vector<uint32_t> free_full_;
  std::vector<uint32_t> free_sliding_;
  proto::StepPlan plan_;  // the next one; admissions and releases gather in it
};

}  // namespace weightless::worker
