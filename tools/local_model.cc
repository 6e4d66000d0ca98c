#include "tools/local_model.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "common/status.h"
#include "kernels/backend.h"
#include "tools/load_display.h"
#include "tools/paths.h"

namespace weightless::tools {

void AddLocalModelFlags(CLI::App& app, LocalModelFlags& flags) {
  flags.model = kBuiltInModel;
  app.add_option("--model", flags.model,
                 "checkpoint folder, .gguf or .safetensors file, or the name of a model in "
                 "--model-dir")
      ->capture_default_str();
  app.add_option("--model-dir", flags.model_dir, "folder where models are looked for by name");
  app.add_option("--dtype", flags.dtype, "bfloat16 or float32")
      ->check(CLI::IsMember({"bfloat16", "float32"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

absl::StatusOr<std::unique_ptr<model::Checkpoint>> OpenCheckpoint(const LocalModelFlags& flags) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model, flags.model_dir));
  return model::Checkpoint::Open(path);
}

absl::StatusOr<std::unique_ptr<worker::Engine>> LoadEngine(const model::Checkpoint& checkpoint,
                                                           const LocalModelFlags& flags,
                                                           const worker::EngineOptions& options) {
  auto backend = kernels::MakeCpuBackend(
      {.activation_type = flags.dtype == "float32" ? kernels::DType::kF32 : kernels::DType::kBF16,
       .num_threads = flags.threads});
  if (backend == nullptr) {
    return absl::UnimplementedError("this processor lacks what the kernels need");
  }
  LoadDisplay display(checkpoint.name(), 1);
  auto engine =
      worker::Engine::Create(checkpoint, std::move(backend), options,
                             [&display](double fraction) { display.Update("engine", fraction); });
  display.Clear();
  return engine;
}

}  // namespace weightless::tools
