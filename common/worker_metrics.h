// What a worker measures about its engine. The names begin with weightless_engine_, so that sums
// over a cluster do not count what its router says about the same worker twice.
#pragma once

#include <memory>

#include "common/metrics.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace weightless {

// Thread-safe.
class WorkerMetrics {
 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // first: the handles point into it; shared with who exposes it

 public:
  // `facts` are constant from now on.
  explicit WorkerMetrics(const WorkerFacts& facts);
  ~WorkerMetrics();

  // Everything here and the process's own; for an exposer, which keeps a weak reference.
  std::shared_ptr<prometheus::Collectable> collectable() const;

  Histogram step_seconds;    // on the device, as the router is told
  Histogram step_sequences;  // sequences in a step
  Histogram step_tokens;     // tokens computed in a step, prefill and decode
  Counter computed_tokens;
  Counter sampled_tokens;
  Counter wait_seconds;  // the engine had sequences in its slots, and no plan to run
  Gauge slots_used;
  Gauge owned;             // 1 while a router has the lease
  Counter rejected_plans;  // plans that broke the contract
  // The two that change after the start: what ops keep for themselves, and the allocator's count.
  Gauge workspace_bytes, allocated_bytes;
};

}  // namespace weightless
