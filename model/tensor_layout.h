// Which tensors a configuration calls for, and in which shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

struct ExpectedTensor {
  std::string name;  // canonical
  std::vector<int64_t> shape;
};

// The projections as a dense checkpoint holds them. What else can hold them lists its own tensors;
// embedding, head and norms are the same in all.
std::vector<ExpectedTensor> DenseProjections(const ModelConfig& config);

// Checks that exactly the tensors the config calls for and `projections` are there, in their
// shapes, and takes config.vocab_size from the embedding's rows. A head that is stored beside a
// tied embedding is removed, as Hugging Face ignores it. kInvalidArgument names `file`, tensor,
// shape and what was expected.
absl::Status CheckTensors(std::string_view file, const std::vector<ExpectedTensor>& projections,
                          ModelConfig& config, TensorMap& tensors);

}  // namespace weightless::model
