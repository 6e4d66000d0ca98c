// Which tensors a configuration calls for, and in which shapes.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "model/config.h"
#include "model/tensor.h"

namespace weightless::model {

// "layers.N.rest" taken apart; nullopt for anything else. N has no leading zeros and is below
// ConfigLimits::kLayers.
struct LayerName {
  int layer;
  std::string_view rest;
};
std::optional<LayerName> ParseLayerName(std::string_view name, std::string_view prefix);

// Checks that exactly the tensors the config calls for are there, in their shapes, and takes
// config.vocab_size from the embedding's rows. A head that is stored beside a tied embedding is
// removed, as Hugging Face ignores it. kInvalidArgument names `file`, tensor, shape and what was
// expected.
absl::Status CheckTensors(std::string_view file, ModelConfig& config, TensorMap& tensors);

}  // namespace weightless::model
