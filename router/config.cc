#include "router/config.h"

#include <optional>
#include <string_view>

#include "common/concat.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status.h"
#include "router/worker_discovery.h"

namespace weightless::router {
namespace {

constexpr int64_t kMaxPerMinute = 1'000'000'000;
constexpr absl::Duration kShortest = absl::Milliseconds(1), kLongest = absl::Hours(24 * 365);

absl::Status CheckRange(std::string_view flag, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("--", flag, " ", value, " is not in [", min, ", ", max, "]"));
}

// Not a number becomes an infinite duration.
absl::Status CheckDuration(std::string_view flag, absl::Duration value, absl::Duration min) {
  if (value >= min && value <= kLongest) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("--", flag, " ", absl::FormatDuration(value),
                                           " is not in [", absl::FormatDuration(min), ", ",
                                           absl::FormatDuration(kLongest), "]"));
}

absl::Status CheckWorker(std::string_view address) {
  ASSIGN_OR_RETURN(const std::optional<DnsName> name, ParseDnsName(address));
  if (name.has_value()) return absl::OkStatus();
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (parsed.has_value() && parsed->port >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("--worker ", Quoted(address), " is neither host:port nor dns:name:port"));
}

// One file without the other is no TLS.
absl::Status CheckTls(const RouterConfig& config) {
  if (config.tls_cert_file.empty() == config.tls_key_file.empty()) return absl::OkStatus();
  const bool lacks_key = config.tls_key_file.empty();
  return absl::InvalidArgumentError(
      Concat(lacks_key ? "--tls-key-file" : "--tls-cert-file",
             " is missing: ", lacks_key ? "--tls-cert-file " : "--tls-key-file ",
             lacks_key ? config.tls_cert_file : config.tls_key_file, " needs it"));
}

absl::Status ValidateHttp(const HttpOptions& http) {
  RETURN_IF_ERROR(CheckRange("http-threads", http.num_threads, 1, 64));
  RETURN_IF_ERROR(CheckRange("max-connections", http.max_connections, 1, 1000000));
  RETURN_IF_ERROR(CheckRange("max-body-bytes", http.max_body_bytes, 1024, int64_t{1} << 30));
  RETURN_IF_ERROR(CheckRange("max-header-bytes", http.max_header_bytes, 1024, 1 << 20));
  RETURN_IF_ERROR(CheckRange("max-header-fields", http.max_header_fields, 8, 10000));
  RETURN_IF_ERROR(CheckDuration("header-timeout", http.header_timeout, kShortest));
  RETURN_IF_ERROR(CheckDuration("body-timeout", http.body_timeout, kShortest));
  RETURN_IF_ERROR(CheckDuration("idle-timeout", http.idle_timeout, kShortest));
  RETURN_IF_ERROR(CheckDuration("write-timeout", http.write_timeout, kShortest));
  return CheckDuration("keep-alive-interval", http.keep_alive_interval, kShortest);
}

}  // namespace

absl::Status Validate(const RouterConfig& config) {
  if (config.workers.empty()) {
    return absl::InvalidArgumentError(
        "--worker is missing: name at least one worker, host:port or dns:name:port");
  }
  for (size_t i = 0; i < config.workers.size(); ++i) {
    RETURN_IF_ERROR(CheckWorker(config.workers[i]));
    for (size_t j = 0; j < i; ++j) {
      if (config.workers[i] == config.workers[j]) {
        return absl::InvalidArgumentError(
            Concat("--worker ", Quoted(config.workers[i]), " is there twice"));
      }
    }
  }
  RETURN_IF_ERROR(CheckRange("port", config.port, 0, 65535));
  RETURN_IF_ERROR(CheckRange("metrics-port", config.metrics_port, -1, 65535));
  RETURN_IF_ERROR(CheckRange("plan-ahead", config.plan_ahead, 1, 64));
  RETURN_IF_ERROR(CheckRange("max-chunk-tokens", config.max_chunk_tokens, 0, 1 << 20));
  RETURN_IF_ERROR(CheckRange("max-queued", config.max_queued, 1, 1000000));
  RETURN_IF_ERROR(CheckDuration("step-timeout", config.step_timeout, kShortest));
  RETURN_IF_ERROR(CheckRange("max-requests-per-key", config.max_requests_per_key, 0, 1000000));
  RETURN_IF_ERROR(CheckRange("max-requests-per-minute-per-key",
                             config.max_requests_per_minute_per_key, 0, kMaxPerMinute));
  RETURN_IF_ERROR(CheckRange("max-tokens-per-minute-per-key", config.max_tokens_per_minute_per_key,
                             0, kMaxPerMinute));
  RETURN_IF_ERROR(CheckTls(config));
  RETURN_IF_ERROR(CheckComplete(config.grpc_tls));
  RETURN_IF_ERROR(ValidateHttp(config.http));
  RETURN_IF_ERROR(CheckDuration("worker-wait-timeout", config.worker_wait_timeout, kShortest));
  RETURN_IF_ERROR(CheckDuration("drain-timeout", config.drain_timeout, kShortest));
  RETURN_IF_ERROR(CheckDuration("request-timeout", config.request_timeout, absl::ZeroDuration()));
  RETURN_IF_ERROR(CheckDuration("stream-delay-ms", config.stream_delay, absl::ZeroDuration()));
  LogLevel level;
  if (!ParseLogLevel(config.log_level, level)) {
    return absl::InvalidArgumentError(Concat("--log-level ", Quoted(config.log_level),
                                             " is none of debug, info, warning, error"));
  }
  return absl::OkStatus();
}

}  // namespace weightless::router
