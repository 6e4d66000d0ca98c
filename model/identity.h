// A digest that names a configuration and its weights.
#pragma once

#include <string>

#include "model/config.h"
#include "model/tensor.h"

namespace weightless::model {

// Hex SHA-256; what it covers is said at Checkpoint::Identity.
std::string DigestModel(const ModelConfig& config, const TensorMap& tensors);

}  // namespace weightless::model
