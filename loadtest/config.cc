#include "loadtest/config.h"

#include <algorithm>
#include <limits>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::loadtest {
namespace {

constexpr int kMaxConcurrency = 16384;
constexpr size_t kMaxTokens = 4'000'000;
constexpr double kMaxRate = 1e6;
// Open files beside the streams: three standard ones, three for each event loop (the runner's and
// those for models, tokens and metrics), kept connections of the latter, one report.
constexpr int64_t kOtherFiles = 40;

template <typename Number>
absl::Status InRange(std::string_view flag, Number value, Number low, Number high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(flag, " ", value, " is not between ", low, " and ", high));
}

absl::Status Exclusive(std::string_view first, std::string_view second) {
  return absl::InvalidArgumentError(Concat(first, " and ", second, " exclude each other"));
}

absl::Status ValidateLengths(const DatasetConfig& dataset) {
  for (const auto& [flag, range] : {std::pair("--input-tokens", dataset.input_tokens),
                                    std::pair("--output-tokens", dataset.output_tokens)}) {
    RETURN_IF_ERROR(InRange<size_t>(flag, range.low, 1, kMaxTokens));
    RETURN_IF_ERROR(InRange<size_t>(flag, range.high, range.low, kMaxTokens));
  }
  if (dataset.kind == DatasetKind::kJsonl && dataset.file.empty()) {
    return absl::InvalidArgumentError("--dataset jsonl needs --dataset-file");
  }
  if (dataset.kind != DatasetKind::kSharedPrefix) return absl::OkStatus();
  RETURN_IF_ERROR(InRange<size_t>("--num-prefixes", dataset.num_prefixes, 1, 1'000'000));
  return InRange<size_t>("--prefix-tokens", dataset.prefix_tokens, 1, kMaxTokens);
}

absl::Status ValidateArrivals(const ArrivalConfig& arrivals) {
  const int num_kinds = (arrivals.rate ? 1 : 0) + (arrivals.ramp != RampKind::kNone ? 1 : 0) +
                        (arrivals.trace_file.empty() ? 0 : 1);
  if (num_kinds > 1) {
    return absl::InvalidArgumentError("--request-rate, --ramp and --trace exclude each other");
  }
  if (arrivals.rate) RETURN_IF_ERROR(InRange("--request-rate", *arrivals.rate, 1e-6, kMaxRate));
  if (arrivals.ramp != RampKind::kNone) {
    RETURN_IF_ERROR(InRange("--ramp: start rate", arrivals.ramp_start_rate, 1e-6, kMaxRate));
    RETURN_IF_ERROR(InRange("--ramp: end rate", arrivals.ramp_end_rate, 1e-6, kMaxRate));
  }
  RETURN_IF_ERROR(InRange("--trace-speed", arrivals.trace_speed, 1e-6, 1e6));
  return InRange("--burstiness", arrivals.burstiness, 1e-3, 1e6);
}

absl::Status ValidateSweep(const Config& config) {
  if (config.sweep == SweepKind::kNone) return absl::OkStatus();
  if (config.compare_url) return Exclusive("--sweep", "--compare");
  if (config.arrivals.ramp != RampKind::kNone || !config.arrivals.trace_file.empty()) {
    return Exclusive("--sweep", "--ramp or --trace");
  }
  const double high = config.sweep == SweepKind::kRate ? kMaxRate : kMaxConcurrency;
  for (const double point : config.sweep_points) {
    RETURN_IF_ERROR(InRange("--sweep", point, config.sweep == SweepKind::kRate ? 1e-6 : 1, high));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Config::Validate() const {
  RETURN_IF_ERROR(InRange("--concurrency", concurrency, 1, kMaxConcurrency));
  RETURN_IF_ERROR(InRange("--max-concurrency", max_concurrency, 0, kMaxConcurrency));
  RETURN_IF_ERROR(InRange("--ramp-up", ramp_up_seconds, 0.0, 86400.0));
  if (num_prompts) RETURN_IF_ERROR(InRange<uint64_t>("--num-prompts", *num_prompts, 1, 1u << 30));
  if (duration_seconds) RETURN_IF_ERROR(InRange("--duration", *duration_seconds, 0.01, 1e7));
  RETURN_IF_ERROR(InRange("--warmup", warmup, -1, 1'000'000));
  RETURN_IF_ERROR(InRange("--timeout", timeout_seconds, 0.001, 1e6));
  RETURN_IF_ERROR(InRange("--audit-tolerance", audit.count_tolerance, 0.0, 1.0));
  RETURN_IF_ERROR(InRange("--audit-ttft-tolerance", audit.ttft_tolerance_seconds, 0.0, 1e6));
  if (temperature) RETURN_IF_ERROR(InRange("--temperature", *temperature, 0.0, 10.0));
  if (progress != "auto" && progress != "on" && progress != "off") {
    return absl::InvalidArgumentError(
        Concat("--progress ", Quoted(progress), " is none of auto, on, off"));
  }
  if (api_key.find_first_of("\r\n") != std::string::npos) {
    return absl::InvalidArgumentError("--api-key holds a line break");
  }
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  RETURN_IF_ERROR(ValidateLengths(dataset));
  RETURN_IF_ERROR(ValidateArrivals(arrivals));
  RETURN_IF_ERROR(ValidateSweep(*this));
  if (compare_url && arrivals.is_open_loop()) return Exclusive("--compare", "an open loop");
  if (arrivals.ramp != RampKind::kNone && !num_prompts && !duration_seconds) {
    return absl::InvalidArgumentError("--ramp needs --num-prompts or --duration to end at");
  }
  return absl::OkStatus();
}

absl::Status Config::ValidateFileLimit(int64_t max_files) const {
  const bool is_sweep = sweep == SweepKind::kConcurrency;
  const bool is_open = !is_sweep && (arrivals.is_open_loop() || sweep == SweepKind::kRate);
  const char* flag = is_sweep ? "--sweep" : is_open ? "--max-concurrency" : "--concurrency";
  double streams = is_open ? max_concurrency : concurrency;
  if (is_sweep) streams = *std::max_element(sweep_points.begin(), sweep_points.end());
  const int servers = compare_url ? 2 : 1;  // a stream keeps its connection to each
  const int64_t needed = static_cast<int64_t>(streams) * servers + kOtherFiles;
  if (max_files < 0 || needed <= max_files) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(flag, " ", streams, " needs ", needed,
                                           " open files, but the limit is ", max_files,
                                           " (ulimit -n)"));
}

uint64_t Config::num_requests(int max_in_flight) const {
  if (num_prompts) return *num_prompts;
  if (duration_seconds || !arrivals.trace_file.empty()) {
    return std::numeric_limits<uint64_t>::max();
  }
  return std::max<uint64_t>(50, 10 * static_cast<uint64_t>(max_in_flight));
}

}  // namespace weightless::loadtest
