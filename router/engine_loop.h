// The one thread that owns every replica's scheduler and blocks: takes events, commits, schedules,
// emits. The HTTP side sees it as the Dispatcher.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/bounded_queue.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "router/admission.h"
#include "router/dispatcher.h"
#include "router/engine_core.h"
#include "router/worker_client.h"
#include "router/worker_pool.h"

namespace weightless::router {

// Thread-safe.
class EngineLoop : public Dispatcher {
 public:
  // `metrics` and `clock` outlive the loop. The thread runs from now on.
  // `make_client` connects to workers that are discovered later.
  EngineLoop(const EngineConfig& config, std::vector<WorkerEndpoint> endpoints,
             RouterMetrics& metrics, const Clock& clock, WorkerClientFactory make_client = nullptr);
  // Stop().
  ~EngineLoop() override;

  std::shared_ptr<const ServedModel> model() const override;
  absl::Status Admit(const std::string& key_id, int num_sequences) const override;
  LengthLimit length_limit() const override { return admission_.length_limit(); }
  absl::Status Submit(std::vector<SequenceRequest> sequences,
                      std::vector<std::shared_ptr<TokenStream>> streams) override;
  void NotifyClosed() override;
  Loads loads() const override;
  void Drain(absl::Time deadline) override;

  // The addresses of all workers that discovery knows of now, beside those given at the beginning.
  // New ones are connected; those that are down and gone are forgotten.
  void SetDiscovered(std::vector<std::string> addresses);

  // Ends what is left with an error, leaves the workers, joins the thread. Idempotent.
  void Stop();

 private:
  struct Submitted {
    std::vector<std::unique_ptr<Sequence>> sequences;
  };
  struct StreamsClosed {};
  struct WorkerReady {
    int replica_idx;
    uint64_t connection_id;
    proto::Description description;
  };
  struct ResultArrived {
    int replica_idx;
    uint64_t connection_id;
    proto::StepResult result;
  };
  struct WorkerLost {
    int replica_idx;
    uint64_t connection_id;
    absl::Status status;
  };
  struct WorkersListed {
    std::vector<std::string> addresses;
  };
  struct DrainBegun {
    absl::Time deadline;
    absl::Notification* done;
  };
  using Event = std::variant<Submitted, StreamsClosed, WorkerReady, ResultArrived, WorkerLost,
                             WorkersListed, DrainBegun>;

  // Turns a client's calls into events.
  class Listener;

  WorkerPool MakePool(std::vector<WorkerEndpoint> endpoints);
  void Run();
  void Handle(Event event, absl::Time now);
  void AddMissing(const std::vector<std::string>& listed);
  // Ends what a drain has waited for long enough, and tells who waits.
  void AdvanceDrain(absl::Time now);
  void RefreshLoads(absl::Time now);
  // How long the thread may sleep, as a time of the real clock.
  absl::Time NextWake(absl::Time now) const;
  // An event that must not be lost; there is always room for it.
  void PushInternal(Event event);
  // Reads the first worker's files.
  absl::Status DefineModel(WorkerHello& hello);

  const EngineConfig config_;
  RouterMetrics& metrics_;
  const Clock& clock_;
  const WorkerClientFactory make_client_;
  const PrefixHasher hasher_ = PrefixHasher::Random();
  Admission admission_;

  BoundedQueue<Event> events_;
  std::atomic<bool> closed_pending_ = false;  // a StreamsClosed is queued

  mutable absl::Mutex mutex_;
  std::shared_ptr<const ServedModel> model_ ABSL_GUARDED_BY(mutex_);  // readers keep it alive
  Loads loads_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the engine thread.
  std::vector<DrainBegun> drains_;
  absl::Time loads_at_ = absl::InfinitePast();
  bool loads_are_stale_ = true;

  std::vector<std::unique_ptr<WorkerListener>> listeners_;
  EngineCore core_;  // after what it and its clients call
  std::thread thread_;
};

}  // namespace weightless::router
