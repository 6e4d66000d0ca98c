// Where the programs and the built-in model lie, whether in a source tree or in an unpacked bundle.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weightless::tools {

inline constexpr char kBuiltInModel[] = "tiny-gemma3";

// The folder of the running program.
std::string ProgramFolder();

// The path of the model that `model` means: a path as it is, or else the name of a model in one of
// the folders `model_dir` (unless empty), share/weightless/models of a bundle, models/ of a source
// tree. For a folder that holds one .gguf file and no config.json, that file. kNotFound lists where
// it was looked for.
absl::StatusOr<std::string> FindModel(const std::string& model, const std::string& model_dir);

}  // namespace weightless::tools
