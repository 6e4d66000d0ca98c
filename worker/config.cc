#include "worker/config.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/concat.h"
#include "common/host_port.h"
#include "common/status.h"

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

std::optional<KernelFamily> FindFamily(std::string_view name) {
  for (const auto& [family_name, family] : kFamilies) {
    if (family_name == name) return family;
  }
  return std::nullopt;
}

}  // namespace

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
  const DType type = config.dtype == "float32" ? DType::kF32 : DType::kBF16;
  const KernelFamily family = *FindFamily(config.kernels);
  if (family == KernelFamily::kReference) return weightless::kernels::MakeReferenceBackend(type);
  std::unique_ptr<Backend> backend = weightless::kernels::MakeCpuBackend(
      {.activation_type = type, .family = family, .num_threads = config.threads});
  if (backend == nullptr) {
    return absl::InvalidArgumentError(
        Concat("--kernels ", config.kernels, ": this processor lacks the instructions"));
  }
  return backend;
}

}  // namespace weightless::worker
