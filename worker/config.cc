#include "worker/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/concat.h"
#include "common/host_port.h"
#include "common/status.h"
#include "kernels/cpu/thread_pool.h"

namespace weightless::worker {

using weightless::kernels::Backend;
using weightless::kernels::DType;
using weightless::kernels::KernelFamily;

namespace {

constexpr std::array<std::pair<std::string_view, KernelFamily>, 5> kFamilies = {{
    {"auto", KernelFamily::kAuto},
    {"reference", KernelFamily::kReference},
    {"avx2", KernelFamily::kAvx2},
    {"avx512bf16", KernelFamily::kAvx512Bf16},
    {"amx", KernelFamily::kAmx},
}};
constexpr int kMaxThreads = 1024;
constexpr int kMaxGpus = 64;

// "cuda" or "cuda:N".
bool IsCuda(std::string_view device) {
  constexpr std::string_view kCuda = "cuda";
  if (device.substr(0, kCuda.size()) != kCuda) return false;
  device.remove_prefix(kCuda.size());
  if (device.empty()) return true;
  if (device[0] != ':') return false;
  int index = -1;
  const char* const end = device.data() + device.size();
  const std::from_chars_result parsed = std::from_chars(device.data() + 1, end, index);
  return parsed.ec == std::errc() && parsed.ptr == end && index >= 0 && index < kMaxGpus;
}

std::optional<KernelFamily> FindFamily(std::string_view name) {
  for (const auto& [family_name, family] : kFamilies) {
    if (family_name == name) return family;
  }
  return std::nullopt;
}

}  // namespace

int NumThreads(const WorkerConfig& config) {
  if (config.threads > 0) return config.threads;
  const int workers = std::max(1, config.engine.workers_on_device);
  return std::max(1, weightless::kernels::DefaultNumThreads() / workers);
}

absl::Status Validate(const WorkerConfig& config) {
  if (config.model.empty()) return absl::InvalidArgumentError("--model is missing");
  if (!ParseHostPort(config.listen).has_value()) {
    return absl::InvalidArgumentError(
        Concat("--listen ", Quoted(config.listen), " is not host:port with a port up to 65535"));
  }
  if (!config.metrics_listen.empty() && !ParseHostPort(config.metrics_listen).has_value()) {
    return absl::InvalidArgumentError(Concat("--metrics-listen ", Quoted(config.metrics_listen),
                                             " is not host:port with a port up to 65535"));
  }
  if (config.device != "cpu" && !IsCuda(config.device)) {
    return absl::InvalidArgumentError(Concat("--device ", Quoted(config.device),
                                             " is none of cpu, cuda, cuda:N with N below ",
                                             kMaxGpus));
  }
  RETURN_IF_ERROR(CheckComplete(config.grpc_tls));
  if (config.dtype != "bfloat16" && config.dtype != "float32") {
    return absl::InvalidArgumentError(
        Concat("--dtype ", Quoted(config.dtype), " is neither bfloat16 nor float32"));
  }
  if (!FindFamily(config.kernels)) {
    return absl::InvalidArgumentError(Concat("--kernels ", Quoted(config.kernels),
                                             " is none of auto, reference, avx2, avx512bf16, amx"));
  }
  if (config.threads < 0 || config.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        Concat("--threads ", config.threads, " is outside 0 .. ", kMaxThreads));
  }
  LogLevel level;
  if (!ParseLogLevel(config.log_level, level)) {
    return absl::InvalidArgumentError(Concat("--log-level ", Quoted(config.log_level),
                                             " is none of debug, info, warning, error"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const WorkerConfig& config) {
  RETURN_IF_ERROR(Validate(config));
  if (config.device != "cpu") {
    return absl::InvalidArgumentError(
        Concat("--device ", config.device, ": this build has no CUDA backend, only cpu"));
  }
  const DType type = config.dtype == "float32" ? DType::kF32 : DType::kBF16;
  const KernelFamily family = *FindFamily(config.kernels);
  if (family == KernelFamily::kReference) return weightless::kernels::MakeReferenceBackend(type);
  std::unique_ptr<Backend> backend;
  const int num_threads = NumThreads(config);
  try {
    backend = weightless::kernels::MakeCpuBackend(
        {.activation_type = type, .family = family, .num_threads = num_threads});
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        Concat("--threads ", num_threads, ": the system gives no more threads: ", error.what()));
  }
  if (backend == nullptr) {
    return absl::InvalidArgumentError(
        Concat("--kernels ", config.kernels, ": this processor lacks the instructions"));
  }
  return backend;
}

}  // namespace weightless::worker
