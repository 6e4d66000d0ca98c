// A worker's engine without a model, for tests of the router: it executes step plans, and checks
// every rule of proto/worker.proto while it does.
//
// A token is a pure function of the sampling parameters and of all tokens before it, so whoever
// knows a prompt knows what must come out (ExpectedOutput), however the sequence was batched,
// preempted or moved. Instead of K and V a block stores, for each position, a hash of the tokens up
// to it. What a step reads is compared with what must be there: a block that was given to two
// sequences, freed too early or found under a wrong prefix is an error at the step that would have
// computed nonsense.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"

namespace weightless::testing {

struct FakeModel {
  int vocab_size = 1000;
  int32_t eos_token = 5;     // as described
  int32_t first_token = 0;   // tokens are drawn from first_token .. vocab_size - 1
  int stop_one_in = 0;       // about one draw in so many is the first stop token; 0: none
  bool check_blocks = true;  // false: for speed, block contents are not looked at
};

proto::Geometry TinyGeometry();  // 4-token blocks, pools of 64, window 10, 8 slots
proto::Description FakeDescription(const FakeModel& model, const proto::Geometry& geometry);

// What a sequence must generate: at most `max_tokens`, up to and with a stop token.
std::vector<int32_t> ExpectedOutput(const FakeModel& model, const std::vector<int32_t>& prompt,
                                    const proto::Sampling& sampling, int max_tokens);
// The logprobs of the token `token` after `prefix`.
proto::Logprobs FakeLogprobs(const std::vector<int32_t>& prefix, int32_t token, uint32_t num_top);

class FakeEngine {
 public:
  FakeEngine(const FakeModel& model, const proto::Geometry& geometry);

  // kInvalidArgument names the rule that a plan broke; the engine must then be Reset.
  absl::StatusOr<proto::StepResult> Step(const proto::StepPlan& plan);
  // Frees every slot and forgets all blocks.
  void Reset();

  int num_live_slots() const;

 private:
  struct Slot {
    proto::Admit admit;
    std::vector<int32_t> tokens;          // known
    std::vector<uint64_t> prefix_hashes;  // [i]: of the tokens before i
    uint64_t sampling_hash = 0;
    int num_computed = 0;
    int num_known = 0;  // tokens at the start of the step
    bool ended = false;
    std::vector<int64_t> full, sliding;  // block by logical index; -1: never set
  };
  struct Run {
    uint32_t slot = 0;
    int begin = 0, end = 0;  // positions
  };
  using Block = std::vector<uint64_t>;  // by offset: hash of the tokens up to and with it

  absl::Status ApplyRelease(const proto::StepPlan& plan);
  absl::Status ApplyAdmit(const proto::Admit& admit);
  absl::Status ApplyGrow(const proto::Grow& grow);
  absl::StatusOr<std::vector<Run>> CollectRuns(const proto::StepPlan& plan);
  absl::Status Write(const Run& run);
  absl::Status CheckReads(const Run& run) const;
  absl::Status WritePosition(const Slot& slot, int position, proto::Pool pool);
  absl::Status CheckPosition(const Slot& slot, int position, proto::Pool pool) const;
  // Where a live slot still needs the block, if anywhere.
  std::optional<uint32_t> FindOtherUser(const Slot& slot, uint32_t block, proto::Pool pool) const;
  void Finish(const Run& run, proto::StepResult& result);
  absl::StatusOr<Slot*> LiveSlot(uint32_t slot);
  int WindowBegin(int position) const;

  const FakeModel model_;
  const proto::Geometry geometry_;
  const int block_size_;
  std::vector<std::optional<Slot>> slots_;
  std::vector<Block> full_blocks_, sliding_blocks_;
  std::vector<uint32_t> decode_slots_;
  uint64_t num_steps_ = 0;
};

}  // namespace weightless::testing
