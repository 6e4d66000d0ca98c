// For measurement: a worker that is further away. Every plan is sent, and every event of the worker
// is told, `delay` later than without it; order is kept.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "router/worker_client.h"

namespace weightless::router {

// Has a thread of its own that sleeps in real time.
std::unique_ptr<WorkerClient> MakeDelayedWorkerClient(std::unique_ptr<WorkerClient> worker,
                                                      absl::Duration delay);

}  // namespace weightless::router
