// A model loaded into this process, for the subcommands that need no server.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "worker/engine.h"

namespace CLI {
class App;
}

namespace weightless::tools {

struct LocalModelFlags {
  std::string model;
  std::string model_dir;
  std::string device = "cpu";
  std::string dtype = "bfloat16";
  std::string kernels = "auto";
  int threads = 0;
};

// --model, --model-dir, --device, --dtype, --kernels, --threads.
void AddLocalModelFlags(CLI::App& app, LocalModelFlags& flags);

// Finds and opens the checkpoint. kNotFound or kInvalidArgument, for the user to read.
absl::StatusOr<std::unique_ptr<model::Checkpoint>> OpenCheckpoint(const LocalModelFlags& flags);

// Loads the weights onto the device, with a bar on a terminal, and tries them:
// kInternal when they give no finite logits.
absl::StatusOr<std::unique_ptr<worker::Engine>> LoadEngine(const model::Checkpoint& checkpoint,
                                                           const LocalModelFlags& flags,
                                                           const worker::EngineOptions& options);

}  // namespace weightless::tools
