// The settings of weightless-router.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/grpc_tls.h"
#include "router/http_options.h"

namespace weightless::router {

struct RouterConfig {
  std::vector<std::string> workers;  // "host:port" or "dns:name:port" each; at least one
  std::string host = "127.0.0.1";
  int port = 8000;        // 0 = any free one
  int metrics_port = -1;  // of an open listener for /metrics alone; -1 = none, 0 = any free one
  HttpOptions http;

  int plan_ahead = 2;        // plans in flight for each worker
  int max_chunk_tokens = 0;  // prefill tokens in one step; 0 = what the worker has room for
  int max_queued = 1024;     // choices accepted and not running yet
  absl::Duration step_timeout = absl::Seconds(30);     // a worker silent for so long is lost
  absl::Duration stream_delay = absl::ZeroDuration();  // added to each way, to measure plan-ahead

  bool vllm_metrics = true;  // /metrics has vLLM's names, too

  // PEM files of the HTTP listener, both or neither; empty = HTTP in the clear.
  std::string tls_cert_file, tls_key_file;
  GrpcTlsFiles grpc_tls;                        // of the connections to workers
  std::string api_key_file;                     // empty = no keys
  int max_requests_per_key = 0;                 // under way at once; 0 = no limit
  int64_t max_requests_per_minute_per_key = 0;  // 0 = no limit
  int64_t max_tokens_per_minute_per_key = 0;    // prompts and answers; 0 = no limit
  std::string served_model_name;  // what clients call the model; empty = as the worker does
  bool use_generation_config = true;
  absl::Duration request_timeout = absl::ZeroDuration();    // from request to last token; 0 = none
  absl::Duration worker_wait_timeout = absl::Seconds(120);  // while no worker is ready
  absl::Duration drain_timeout = absl::Seconds(30);
  std::string log_level = "info";
};

// kInvalidArgument names the flag, the value and the limit.
absl::Status Validate(const RouterConfig& config);

}  // namespace weightless::router
