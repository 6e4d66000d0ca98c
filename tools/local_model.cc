#include "tools/local_model.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "tools/load_display.h"
#include "tools/paths.h"
#include "worker/config.h"

namespace weightless::tools {

void AddLocalModelFlags(CLI::App& app, LocalModelFlags& flags) {
  flags.model = kBuiltInModel;
  app.add_option("--model", flags.model,
                 "checkpoint folder, .gguf or .safetensors file, or the name of a model in "
                 "--model-dir")
      ->capture_default_str();
  app.add_option("--model-dir", flags.model_dir, "folder where models are looked for by name");
  app.add_option("--device", flags.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--dtype", flags.dtype, "bfloat16 or float32")->capture_default_str();
  app.add_option("--kernels", flags.kernels, "auto, reference, avx2, avx512bf16 or amx")
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "0: one for each core")->capture_default_str();
}

absl::StatusOr<std::unique_ptr<model::Checkpoint>> OpenCheckpoint(const LocalModelFlags& flags) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model, flags.model_dir));
  return model::Checkpoint::Open(path);
}

absl::StatusOr<std::unique_ptr<worker::Engine>> LoadEngine(const model::Checkpoint& checkpoint,
                                                           const LocalModelFlags& flags,
                                                           const worker::EngineOptions& options) {
  worker::WorkerConfig config;
  config.model = flags.model;
  config.device = flags.device;
  config.dtype = flags.dtype;
  config.kernels = flags.kernels;
  config.threads = flags.threads;
  ASSIGN_OR_RETURN(auto backend, worker::MakeBackend(config));
  LoadDisplay display(checkpoint.name(), 1);
  auto engine =
      worker::Engine::Create(checkpoint, std::move(backend), options,
                             [&display](double fraction) { display.Update("engine", fraction); });
  display.Clear();
  RETURN_IF_ERROR(engine.status());
  if (const absl::Status status = (*engine)->WarmUp(); !status.ok()) {
    return absl::Status(status.code(), Concat(flags.model, ": ", status.message()));
  }
  return engine;
}

}  // namespace weightless::tools
