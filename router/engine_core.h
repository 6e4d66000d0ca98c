// What the engine thread does with each event: queue, place, schedule, emit, recover. Everything
// but the thread, the clock and the sockets, so that tests can drive it step by step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "router/admission.h"
#include "router/dispatcher.h"
#include "router/prefix_hash.h"
#include "router/waiting_queue.h"
#include "router/worker_pool.h"

namespace weightless::router {

struct EngineConfig {
  int plan_ahead = 2;        // plans in flight for each replica
  int max_chunk_tokens = 0;  // prefill tokens in one step; 0: what the worker has room for
  int max_queued = 1024;     // sequences accepted and not placed
  absl::Duration step_timeout = absl::Seconds(30);  // a worker without a result so long is lost
  absl::Duration worker_wait_timeout = absl::Seconds(120);  // for a ready worker that holds it
  std::string owner = {};  // a name for this router, which a worker that it owns tells the others
};

// Owned by the engine thread. After any number of On... calls, Pump() must follow.
class EngineCore {
 public:
  // `hasher`, `admission` and `metrics` outlive the core.
  EngineCore(const EngineConfig& config, WorkerPool pool, const PrefixHasher& hasher,
             Admission& admission, RouterMetrics& metrics);

  // New sequences, their places in the queue taken from `admission`.
  void OnSubmitted(std::vector<std::unique_ptr<Sequence>> sequences, absl::Time now);
  // Some streams are closed: gives back what their sequences hold.
  void OnStreamsClosed();
  // `served` is what the first worker ever to be ready defines, the same for all.
  void OnWorkerReady(int replica_idx, uint64_t connection_id, const proto::Description& description,
                     const ServedModel& served, absl::Time now);
  void OnResult(int replica_idx, uint64_t connection_id, const proto::StepResult& result,
                absl::Time now);
  void OnWorkerLost(int replica_idx, uint64_t connection_id, const absl::Status& status,
                    absl::Time now);
  // Of discovered workers; see WorkerPool.
  std::vector<std::string> SetListed(const std::vector<std::string>& addresses);
  int FreePlace() const { return pool_.FreePlace(); }
  void AddWorker(WorkerEndpoint endpoint, WorkerListener* listener) {
    pool_.Add(std::move(endpoint), listener);
  }
  // Ends every sequence with the error.
  void EndAll(const absl::Status& status);
  // Leaves every worker.
  void DisconnectAll();

  // Times out, reconnects, places, schedules. `want_files`: nobody has defined the served model
  // yet.
  void Pump(absl::Time now, bool want_files);
  // When Pump has something to do even if no event comes.
  absl::Time NextPump() const;

  bool idle() const { return num_live_ == 0; }  // no sequence is queued or running
  // A snapshot; sets the gauges, too.
  Loads ComputeLoads();
  // CHECK-fails when queue, replicas and counts disagree.
  void CheckInvariants() const;

 private:
  void Place(absl::Time now);
  void ScheduleReplica(Replica& replica, absl::Time now);
  void Emit(const Emission& emission, absl::Time now);
  void CountStep(Replica& replica, const proto::StepResult& result, absl::Time now);
  void ReturnPreempted(Scheduler& scheduler);
  // Takes back a replica's sequences and marks it down.
  void GiveUp(Replica& replica, const absl::Status& why, absl::Time now);
  void CheckStepTimeouts(absl::Time now);
  void ExpireSequences(absl::Time now);
  // When a sequence has waited long enough for a ready worker that holds it.
  absl::Time WaitsUntil(const Sequence& sequence) const;
  // Takes every sequence that meets the condition out of queue and replicas.
  std::vector<std::unique_ptr<Sequence>> TakeIf(
      const std::function<bool(const Sequence&)>& condition);
  // The sequence is over; with an error its stream is told.
  void End(std::unique_ptr<Sequence> sequence, const absl::Status& status);
  // A worker has become ready, was lost or is known no more.
  void OnReadyChanged(absl::Time now);

  const EngineConfig config_;
  WorkerPool pool_;
  const PrefixHasher& hasher_;
  Admission& admission_;
  RouterMetrics& metrics_;

  WaitingQueue queue_;
  uint64_t num_sequences_ = 0;
  int num_live_ = 0;
  absl::Time next_expiry_ = absl::InfiniteFuture();    // no sequence ends earlier
  absl::Time ready_len_since_ = absl::InfinitePast();  // queue_.max_len() is what it is
  StepOutcome outcome_;                                // of the step being committed

  // The head of the queue found no place; it is looked at again when one of these changed.
  struct Refusal {
    uint64_t head_id = 0;
    uint64_t num_releases = 0;
    uint64_t num_connections = 0;
    friend bool operator==(const Refusal&, const Refusal&) = default;
  };
  Refusal PresentState(const Sequence& head) const;
  Refusal refusal_;
};

}  // namespace weightless::router
