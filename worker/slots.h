// The sequences of an engine, one a slot: tokens, block tables, sampling. Plans change them; what a
// plan may say is checked here and nowhere else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/sample.h"
#include "proto/worker.pb.h"

namespace weightless::worker {

// What the fields of a plan are checked against.
struct PlanLimits {
  int vocab_size = 0;
  int num_slots = 0;
  int max_context = 0;
  int max_step_tokens = 0;
  int sliding_window = 0;  // 0: no sliding layers
  int64_t num_full_blocks = 0;
  int64_t num_sliding_blocks = 0;

  int max_blocks_per_seq() const;
};

// Drawn tokens are not here: they stay where the backend draws (kernels::SlotStates), and plans
// depend only on how many there are.
struct Sequence {
  bool in_use = false;
  bool ended = false;  // by a stop token or a full context; plans that still name it skip it
  uint64_t id = 0;     // no two admissions have the same
  std::vector<int32_t> known_tokens;  // at admission: what prefill has to compute
  int num_prompt_tokens = 0;          // the first of them
  int num_tokens = 0;    // known and drawn ones, the latter counted when their step is launched
  int num_computed = 0;  // leading tokens whose K and V are in the blocks, likewise
  kernels::SamplingParams sampling;
  // [max_blocks_per_seq] by position / block_size, -1 = not set. Sliding entries behind the window
  // may be stale.
  std::vector<int32_t> full_blocks;
  std::vector<int32_t> sliding_blocks;
};

// A stretch of one sequence that a step computes.
struct Run {
  int slot = 0;
  int first = 0;  // position
  int num_tokens = 0;

  int end() const { return first + num_tokens; }
};

// Entries of a slot's block table that a plan has set.
struct TableChange {
  int slot = 0;
  bool sliding = false;
  int first = 0;
  int count = 0;
};

// Owned by the engine thread.
class Slots {
 public:
  explicit Slots(const PlanLimits& limits);

  // Applies a plan: release, admit, grow; then returns what the step computes, decodes first, valid
  // until the next call. kInvalidArgument names field, value and limit; the slots are then in an
  // unusable state until Reset.
  absl::StatusOr<std::span<const Run>> Apply(const proto::StepPlan& plan);

  // What the last plan changed, in the order it is to be applied.
  std::span<const int> admitted() const { return admitted_; }
  std::span<const TableChange> table_changes() const { return table_changes_; }

  // The run is launched: its K and V count as stored and, when it computes the sequence's last
  // token, the one that follows as drawn. That ends a sequence whose context is then full.
  void Commit(const Run& run);

  // A token drawn for the sequence is one of its stop tokens. Nothing happens when the slot has
  // been given to another.
  void End(int slot, uint64_t sequence_id);

  const Sequence& sequence(int slot) const { return sequences_[static_cast<size_t>(slot)]; }
  const PlanLimits& limits() const { return limits_; }
  int num_used() const { return num_used_; }  // slots with a sequence, ended or not
  // The last step ran a sequence that the step before it ran, too.
  bool step_continues() const { return step_continues_; }
  // The last step that was applied; 0 before the first.
  uint64_t step() const { return step_; }

  // Frees every slot; the next plan is step 1.
  void Reset();

 private:
  absl::StatusOr<int> CheckSlot(std::string_view field, uint32_t slot) const;
  absl::Status Release(uint32_t slot);
  absl::Status Admit(const proto::Admit& admit);
  absl::Status Grow(const proto::Grow& grow);
  absl::Status SetDecodeSet(const proto::DecodeSet& decode);
  absl::Status AddDecodes();
  absl::Status AddPrefill(const proto::PrefillChunk& chunk);
  absl::Status AddRun(const Run& run);
  absl::Status CheckTables(const Run& run) const;

  const PlanLimits limits_;
  std::vector<Sequence> sequences_;         // by slot
  std::vector<int> decode_set_;             // slots, as the plans last said
  std::vector<Run> runs_;                   // of the current step
  std::vector<int> admitted_;               // likewise
  std::vector<TableChange> table_changes_;  // likewise
  std::vector<uint64_t> last_run_;          // by slot: the step that last computed something of it
  int num_step_tokens_ = 0;
  int num_used_ = 0;
  uint64_t last_id_ = 0;  // of a sequence
  bool step_continues_ = false;
  uint64_t step_ = 0;
};

}  // namespace weightless::worker
