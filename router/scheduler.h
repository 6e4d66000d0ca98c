// Continuous batching for one replica: which sequences run in the next step, with which blocks.
// Schedule makes a plan, several of which may be in flight; Commit takes their results in order.
// Pure: no thread, no clock, no I/O.
//
// Decodes come first, then prefill chunks: of the key with the least service so far, the smallest
// priority, in order of admission. A decode that lacks a block preempts a sequence of the key with
// the most service: the newest of its largest priority, never the same one twice in a row. The one
// that would be preempted waits instead when it is itself the one that lacks the block. What a
// preempted sequence still has in flight is committed, then it goes back to the queue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "router/kv_pools.h"
#include "router/sequence.h"

namespace weightless::router {

struct SchedulerOptions {
  proto::Geometry geometry;  // as CheckDescription accepts it
  int vocab_size = 0;
  int max_chunk_tokens = 0;  // prefill tokens in one step; 0: as many as the step has room for
  const PrefixHasher* hasher = nullptr;  // outlives the scheduler
};

// What a result brought, in the order of its slots.
struct Emission {
  Sequence* sequence = nullptr;
  int32_t token = -1;
  const proto::SlotResult* result = nullptr;  // as long as the result lives
  std::optional<EndReason> end;
};
struct StepOutcome {
  std::vector<Emission> emissions;
  std::vector<std::unique_ptr<Sequence>> finished;  // after their last emission
  int num_prompt_tokens = 0;      // prefilled, or found in the cache, for the first time
  int num_recomputed_tokens = 0;  // prefilled again
  int batch_size = 0;             // sequences in the step

  void Clear();
};

// Owned by the engine thread.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Tokens, prompt and output, of the longest sequence that fits when it is alone.
  int64_t max_sequence_len() const { return KvPools::MaxSequenceLen(options_.geometry); }

  // Whether a waiting sequence can start now, and with how much of it in the cache.
  struct Probe {
    bool can_start = false;
    int num_cached_tokens = 0;
  };
  Probe Examine(const Sequence& sequence) const;
  // Starts it with the next plan. Requires Examine().can_start.
  void Admit(std::unique_ptr<Sequence> sequence);

  // The next plan; nullopt when nothing can run.
  std::optional<proto::StepPlan> Schedule();
  // Commits the result of the oldest plan in flight into `outcome` (cleared first, kept by the
  // caller so that a step allocates nothing). kInternal names what a faulty result broke; the
  // replica must then be given up, and what `outcome` holds is valid.
  absl::Status Commit(const proto::StepResult& result, StepOutcome& outcome);

  // Preempts, for a waiting sequence that finds no room, the newest sequence of the key that runs
  // most sequences here, unless that is no more than one more than the waiting one's key runs: so
  // keys share the slots evenly while all want them. False when nobody has to yield.
  bool MakeRoomFor(const Sequence& waiting);
  // Sequences that were preempted and have nothing in flight any more: for the head of the queue.
  std::vector<std::unique_ptr<Sequence>> TakePreempted();
  // Ends a sequence from outside: its slot and blocks are free for the next plan.
  std::unique_ptr<Sequence> Remove(Sequence& sequence);
  // Everything, oldest first, `on` as it was; the scheduler is then of no more use.
  std::vector<std::unique_ptr<Sequence>> TakeAll();

  int num_in_flight() const { return static_cast<int>(in_flight_.size()); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_prefilling() const;
  uint64_t num_preemptions() const { return num_preemptions_; }
  // Rises when room appears: a refused sequence is worth another look.
  uint64_t num_releases() const { return pools_.num_releases() + num_unblocked_; }
  int64_t num_outstanding_tokens() const;
  const KvPools& pools() const { return pools_; }
  // The plan made last runs a sequence that the plan before it ran, too.
  bool last_plan_continues() const { return last_plan_continues_; }
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const auto& sequence : running_) visit(*sequence);
    for (const auto& sequence : preempted_) visit(*sequence);
  }

  // CHECK-fails when slots, blocks and sequences disagree. O(everything).
  void CheckInvariants() const;

 private:
  // One sequence's part in a plan.
  struct Run {
    uint32_t slot = 0;
    int num_tokens = 0;
    bool samples = false;
    bool done = false;             // its result has arrived
    Sequence* sequence = nullptr;  // null: removed since
  };
  struct InFlight {
    uint64_t step = 0;
    std::vector<Run> runs;
  };

  bool IsPrefilling(const Sequence& sequence) const;
  bool IsDecoding(const Sequence& sequence) const;
  // Not when its last token is planned: it ends by itself.
  bool IsPreemptible(const Sequence& sequence) const;

  // Schedule.
  void PlanDecodes();
  void OrderPrefills();
  void PlanPrefills();
  bool CoverDecode(Sequence& sequence);
  void Give(Sequence& sequence, int num_tokens);
  bool IsBetterVictim(const Sequence& a, const Sequence& b) const;
  Sequence* PickVictim() const;
  void Preempt(Sequence& victim);
  void SweepPreempted();
  proto::StepPlan BuildPlan();
  void AnnounceChanges(Sequence& sequence, proto::StepPlan& plan);

  // Commit.
  absl::Status CommitSlot(const proto::SlotResult& result, std::vector<Run>& runs,
                          StepOutcome& outcome);
  absl::Status CommitPromptLogprobs(const proto::SlotResult& result, Sequence& sequence);
  absl::Status CommitToken(const proto::SlotResult& result, Sequence& sequence,
                           StepOutcome& outcome);
  static absl::Status CheckComplete(const std::vector<Run>& runs);
  void Account(const std::vector<Run>& runs, StepOutcome& outcome);
  void Finish(StepOutcome& outcome);

  const SchedulerOptions options_;
  const int num_slots_;
  KvPools pools_;
  std::vector<std::unique_ptr<Sequence>> running_;    // in order of admission
  std::vector<std::unique_ptr<Sequence>> preempted_;  // not taken yet
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> released_slots_;  // since the last plan

  uint64_t num_steps_ = 0;
  std::deque<InFlight> in_flight_;
  std::vector<int> run_of_slot_;  // while a result is committed: index into its runs, or -1
  std::vector<std::vector<Run>> spare_runs_;
  std::vector<uint32_t> decode_slots_, sent_decode_slots_;
  std::vector<Sequence*> prefills_;    // while a plan is made: in prefill, in their order
  int budget_ = 0;                     // tokens left in the plan being made
  int prefill_budget_ = 0;             // of these, for prefill
  bool someone_lacks_blocks_ = false;  // nobody is admitted before it got them
  uint64_t num_unblocked_ = 0;
  uint64_t last_preempted_id_ = 0;  // 0: none
  uint64_t num_preemptions_ = 0;
  bool last_plan_continues_ = false;
};

}  // namespace weightless::router
