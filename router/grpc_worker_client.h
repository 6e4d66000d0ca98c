// A worker over gRPC. A connection is three calls on a channel of its own: Describe, ModelFiles
// when wanted, and Run, which stays open. A worker that does not answer HTTP/2 pings for two
// seconds is lost, also when the connection is idle.
#pragma once

#include <memory>
#include <string>

#include "router/worker_client.h"

namespace weightless::router {

// `address` is host:port.
std::unique_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& address);

}  // namespace weightless::router
