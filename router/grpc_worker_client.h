// A worker over gRPC. A connection is three calls on a channel of its own: Describe, ModelFiles
// when wanted, and Run, which stays open. A worker that does not answer HTTP/2 pings for two
// seconds is lost, also when the connection is idle.
#pragma once

#include <memory>
#include <string>

#include "common/grpc_tls.h"
#include "router/worker_client.h"

namespace weightless::router {

// `address` is host:port.
std::unique_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& address);

// The same with mutual TLS: each connection shows the certificate that is in force in `tls`, which
// outlives the client, and the worker's must be signed by its CA and name `server_name`, or without
// one the host of `address`.
std::unique_ptr<WorkerClient> MakeTlsWorkerClient(const std::string& address, GrpcTls& tls,
                                                  const std::string& server_name = {});

}  // namespace weightless::router
