// Gemma 3 in a GGUF file: configuration from its metadata, tensors under their canonical names.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/gguf_header.h"
#include "model/tensor.h"

namespace weightless::model {

// kInvalidArgument names file, key, value and limit; kUnimplemented names an architecture or
// feature that is not supported.
absl::StatusOr<ModelConfig> GgufConfig(const GgufHeader& header);

// Adds the text tensors; vision tensors (v.*, mm.*) are ignored. `bytes` is the whole untrusted
// file and outlives the tensors. kInvalidArgument unless every text tensor has a known name and
// type and whole blocks a row, and the tensors, each padded to the alignment, fill the data section
// (as llama.cpp's reader demands): a wrong type or shape leaves a gap or an overlap.
absl::Status AddGgufTensors(const GgufHeader& header, std::string_view bytes, TensorMap& tensors);

}  // namespace weightless::model
