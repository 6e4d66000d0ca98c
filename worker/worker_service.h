// The gRPC edge of a worker: Describe, ModelFiles, Run and the standard health service.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/grpc_tls.h"
#include "common/worker_metrics.h"
#include "worker/engine.h"

namespace weightless::worker {

// Thread-safe.
class WorkerService {
 public:
  // Listens on `address`, host:port (0: any free port), and reports SERVING: the engine is warm.
  // kInvalidArgument when it cannot listen there. `model_files` as in Checkpoint. The engine
  // outlives the service and has no other user. With `tls`, which outlives it too, it talks to
  // nobody without a certificate of its CA.
  static absl::StatusOr<std::unique_ptr<WorkerService>> Start(
      const std::string& address, Engine& engine, std::map<std::string, std::string> model_files,
      GrpcTls* tls = nullptr);
  // Cancels every call; returns after the engine's step under way.
  ~WorkerService();

  WorkerMetrics& metrics();

  // host:port with the port it got.
  const std::string& address() const { return address_; }

 private:
  class Impl;
  WorkerService(std::unique_ptr<Impl> impl, std::string address);

  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace weightless::worker
