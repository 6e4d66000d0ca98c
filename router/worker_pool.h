// The replicas: who is there, who answers, and which one a sequence goes to. A replica that is lost
// is connected again, after 100 ms at first and 2 s at most. Discovered ones come and go: when one
// is down and no longer listed it is retired, and its place is free for another.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "proto/worker.pb.h"
#include "router/dispatcher.h"
#include "router/scheduler.h"
#include "router/stall_meter.h"
#include "router/worker_client.h"

namespace weightless::router {

// One worker as configured. The listener hears of it by its place in the list.
struct WorkerEndpoint {
  std::string address;
  std::unique_ptr<WorkerClient> client;
};

struct Replica {
  enum class State { kDown, kConnecting, kReady, kRetired };

  int replica_idx = 0;
  std::string address;
  std::unique_ptr<WorkerClient> client;
  ReplicaMetrics metrics;
  bool listed = true;        // configured, or in the latest list of discovered addresses
  LengthLimit length_limit;  // of what it served last; 0 tokens before

  State state = State::kDown;
  uint64_t connection_id = 0;  // of the connection that counts; events of others are stale
  absl::Time act_at = absl::InfinitePast();  // down: connect again; connecting: give up
  absl::Duration backoff;
  absl::Time first_try_at = absl::InfiniteFuture();  // to connect
  bool was_ready_once = false;
  std::string last_problem;  // logged when it changes
  bool warned = false;       // of a problem, since it was ready

  // While ready.
  std::unique_ptr<Scheduler> scheduler;
  StallMeter stalls;
  absl::Time progress_at;  // the oldest plan in flight is at the head of the worker's queue since
};

// kInvalidArgument when the description breaks a limit, naming field, value and limit.
absl::Status CheckDescription(const proto::Description& description);
// kFailedPrecondition when a worker does not serve what the served model is.
absl::Status CheckServes(const proto::Description& served, const proto::Description& description);

// Of the longest sequence that such a worker could run.
LengthLimit LimitOf(const proto::Geometry& geometry);

// Owned by the engine thread.
class WorkerPool {
 public:
  WorkerPool(std::vector<WorkerEndpoint> endpoints, std::vector<WorkerListener*> listeners,
             RouterMetrics& metrics);

  std::vector<Replica>& replicas() { return replicas_; }
  const std::vector<Replica>& replicas() const { return replicas_; }
  int num_ready() const;
  // Of the replica that holds the longest sequence, ready or away; 0 tokens when none is known.
  LengthLimit length_limit() const;

  // Discovery lists these addresses now. Those that no replica has and that were not configured
  // are returned: they are to be added.
  std::vector<std::string> SetListed(const std::vector<std::string>& addresses);
  // The place where the next Add goes: of a retired replica, or one more than there are.
  int FreePlace() const;
  // Puts a discovered worker in that place.
  void Add(WorkerEndpoint endpoint, WorkerListener* listener);

  // The replica, when the event belongs to its present connection.
  Replica* Find(int replica_idx, uint64_t connection_id);

  // Connects what is due and gives up connections that take too long: true when it did.
  bool Tick(absl::Time now, bool want_files);
  // The next time at which Tick has something to do.
  absl::Time NextTick() const;

  void MarkReady(Replica& replica, const SchedulerOptions& options);
  // Ends the connection, connects again later. The caller takes the sequences first.
  void MarkDown(Replica& replica, const absl::Status& why, absl::Time now);

  // Where a sequence can start now: longest cached prefix, then least outstanding tokens; null when
  // nowhere.
  Replica* Choose(const Sequence& sequence);
  // Has one sequence of another key yield on some replica (Scheduler::MakeRoomFor).
  bool MakeRoom(const Sequence& sequence);

 private:
  void Connect(Replica& replica, absl::Time now, bool want_files);
  Replica MakeReplica(int replica_idx, WorkerEndpoint endpoint);
  void Retire(Replica& replica);

  RouterMetrics& metrics_;
  std::set<std::string> configured_;
  std::vector<Replica> replicas_;
  std::vector<WorkerListener*> listeners_;
  uint64_t num_connections_ = 0;
};

}  // namespace weightless::router
