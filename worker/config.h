// What a worker is told at start.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/grpc_tls.h"
#include "common/log.h"
#include "kernels/backend.h"
#include "worker/engine.h"

namespace weightless::worker {

// Flags as they are typed; names as in --help.
struct WorkerConfig {
  std::string model;                   // path of a checkpoint
  std::string listen = "127.0.0.1:0";  // host:port, port 0: any free one
  std::string device = "cpu";          // "cpu", "cuda" (the first GPU) or "cuda:N"
  std::string metrics_listen;          // host:port that answers GET /metrics; empty: none
  GrpcTlsFiles grpc_tls;
  std::string dtype = "bfloat16";
  std::string kernels = "auto";
  int threads = 0;  // 0: its part of the cores this process may run on
  std::string log_level = "info";
  EngineOptions engine;
};

// kInvalidArgument naming flag, value and limit. Ranges that depend on the model are Engine's to
// check.
absl::Status Validate(const WorkerConfig& config);

// Kernel threads: those asked for, else this worker's part of the cores.
int NumThreads(const WorkerConfig& config);

// The backend that device, dtype, kernels and threads ask for; the one place that knows which there
// are. kInvalidArgument when this build has none for the device, or this processor cannot run the
// kernels; kResourceExhausted when the system gives no more threads.
absl::StatusOr<std::unique_ptr<weightless::kernels::Backend>> MakeBackend(
    const WorkerConfig& config);

}  // namespace weightless::worker
