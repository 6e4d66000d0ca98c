// What a worker says about itself (proto Description).
#pragma once

#include <cstddef>

#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "proto/worker.pb.h"
#include "worker/slots.h"
#include "worker/weights.h"

namespace weightless::worker {

// Everything but the weight identity and the memory ledger.
proto::Description Describe(const model::Checkpoint& checkpoint, const kernels::Backend& backend,
                            const PlanLimits& limits);

// Device memory by use, in bytes. Every allocation of the engine is in one of these.
struct MemoryLedger {
  WeightBytes weights;
  size_t kv_full = 0;
  size_t kv_sliding = 0;
  size_t activations = 0;  // the layers' buffers and the step's arrays
  size_t logits = 0;
};
void AddMemoryLedger(const MemoryLedger& ledger, proto::Description& description);
// What the backend's ops keep for themselves by now, and the allocator's count, to which the whole
// ledger then adds up. Any thread may call it.
void AddWorkspace(const kernels::Backend& backend, proto::Description& description);

}  // namespace weightless::worker
