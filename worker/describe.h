// What a worker says about itself (proto Description).
#pragma once

#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "proto/worker.pb.h"
#include "worker/memory_ledger.h"
#include "worker/slots.h"
#include "worker/weight_kind.h"

namespace weightless::worker {

// Everything but the weight identity and the memory ledger.
proto::Description Describe(const model::Checkpoint& checkpoint, const WeightKind& kind,
                            const kernels::Backend& backend, const PlanLimits& limits);

void AddMemoryLedger(const MemoryLedger& ledger, proto::Description& description);
// What the backend's ops keep for themselves by now, and the allocator's count, to which the whole
// ledger then adds up. Any thread may call it.
void AddWorkspace(const kernels::Backend& backend, proto::Description& description);

}  // namespace weightless::worker
