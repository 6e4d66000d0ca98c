#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/concat.h"
#include "common/flags.h"
#include "common/grpc_tls.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status.h"
#include "model/checkpoint.h"
#include "model/tokenizer.h"
#include "worker/config.h"
#include "worker/engine.h"
#include "worker/load_progress.h"
#include "worker/metrics_listener.h"
#include "worker/shutdown.h"
#include "worker/worker_service.h"

namespace weightless::worker {
namespace {

void AddFlags(WorkerConfig& config, CLI::App& app) {
  EngineOptions& engine = config.engine;
  app.add_option("--model", config.model, "Checkpoint: a directory, a .gguf or a .safetensors file")
      ->required();
  app.add_option("--listen", config.listen, "host:port; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--metrics-listen", config.metrics_listen,
                 "host:port that answers GET /metrics, without authentication; empty: none");
  AddGrpcTlsFlags(app, config.grpc_tls);
  app.add_option("--max-length", engine.max_length, "Tokens per sequence; 0: the model's limit");
  app.add_option("--num-slots", engine.num_slots, "Sequences at once")->capture_default_str();
  app.add_option("--max-step-tokens", engine.max_step_tokens, "Tokens computed in one step")
      ->capture_default_str();
  app.add_option("--steps-in-flight", engine.steps_in_flight,
                 "Steps launched before the first is waited for; 0: what the device needs");
  app.add_option("--device-memory-utilization", engine.memory_utilization,
                 "Share of the memory left by the weights that the KV cache may take; 0: 0.3 on a "
                 "CPU, 0.9 on a GPU");
  app.add_option("--workers-on-device", engine.workers_on_device,
                 "Workers that share this device: each takes its part of memory and cores")
      ->capture_default_str();
  app.add_option("--num-full-blocks", engine.num_full_blocks,
                 "KV blocks of full-attention layers; 0: by memory");
  app.add_option("--num-sliding-blocks", engine.num_sliding_blocks,
                 "KV blocks of sliding layers; 0: by memory");
  app.add_option("--device", config.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--dtype", config.dtype, "bfloat16 or float32")->capture_default_str();
  app.add_option("--threads", config.threads, "0: all cores, or this worker's part of them");
  app.add_option("--kernels", config.kernels, "auto, reference, avx2, avx512bf16 or amx")
      ->capture_default_str();
  app.add_option("--name", engine.model_name, "Model name to report; empty: the path's base name");
  app.add_option("--log-level", config.log_level, "debug, info, warning or error")
      ->capture_default_str();
}

// A worker has no use for its tokenizer, but no router can serve the model without.
absl::Status CheckTokenizer(const std::string& path, const model::Checkpoint& checkpoint) {
  const auto tokenizer = model::Tokenizer::FromModelFiles(checkpoint.model_files());
  if (tokenizer.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(path, ": ", tokenizer.status().message()));
}

absl::Status Serve(const WorkerConfig& config, ShutdownSignal& shutdown) {
  RETURN_IF_ERROR(Validate(config));
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, level)) SetLogLevel(level);
  LogInfo("starting", {{"model", config.model},
                       {"listen", config.listen},
                       {"device", config.device},
                       {"dtype", config.dtype},
                       {"kernels", config.kernels},
                       {"threads", config.threads},
                       {"num_slots", config.engine.num_slots},
                       {"max_step_tokens", config.engine.max_step_tokens}});
  ASSIGN_OR_RETURN(const std::unique_ptr<GrpcTls> tls, GrpcTls::Load(config.grpc_tls));
  if (tls == nullptr && !IsLoopback(ParseHostPort(config.listen)->host)) {
    LogWarning("grpc_without_tls",
               {{"listen", config.listen},
                {"reason", "whoever reaches this port can run plans; see --grpc-tls-cert-file"}});
  }
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeBackend(config));
  ASSIGN_OR_RETURN(std::unique_ptr<model::Checkpoint> checkpoint,
                   model::Checkpoint::Open(config.model));
  RETURN_IF_ERROR(CheckTokenizer(config.model, *checkpoint));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      Engine::Create(*checkpoint, std::move(backend), config.engine, ShowLoadProgress()));
  std::map<std::string, std::string> model_files = checkpoint->model_files();
  checkpoint.reset();  // unmaps the files
  if (const absl::Status status = engine->WarmUp(); !status.ok()) {
    return absl::Status(status.code(), Concat(config.model, ": ", status.message()));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerService> service,
                   WorkerService::Start(config.listen, *engine, std::move(model_files), tls.get()));
  std::unique_ptr<MetricsListener> metrics_listener;
  if (!config.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(metrics_listener,
                     MetricsListener::Start(config.metrics_listen, service->metrics()));
    LogInfo("metrics_listening", {{"address", metrics_listener->address()}});
  }
  const proto::Description& about = engine->description();
  LogInfo("ready", {{"model", about.model().name()},
                    {"numerics", about.device().numerics()},
                    {"max_context", about.geometry().max_context()},
                    {"num_full_blocks", about.geometry().num_full_blocks()},
                    {"num_sliding_blocks", about.geometry().num_sliding_blocks()}});
  LogInfo("listening",
          {{"address", service->address()}, {"tls", tls != nullptr ? "mutual" : "none"}});
  shutdown.Wait([&tls] {
    if (tls != nullptr) tls->Reload();
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace weightless::worker

int main(int argc, char** argv) {
  weightless::worker::ShutdownSignal shutdown(absl::Milliseconds(800));
  CLI::App app("Executes step plans of a router on one device.", "weightless-worker");
  weightless::worker::WorkerConfig config;
  weightless::worker::AddFlags(config, app);
  if (const auto code = weightless::ParseFlags(app, argc, argv)) return *code;
  const absl::Status status = weightless::worker::Serve(config, shutdown);
  if (status.ok()) return 0;
  std::fprintf(stderr, "weightless-worker: %s\n", std::string(status.message()).c_str());
  return 2;
}
