// The safetensors container: u64 header length, a JSON header {name: {dtype, shape, data_offsets}},
// raw data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tensor.h"

namespace weightless::model {

// Bounds of what is accepted; real headers have some hundred KiB and 1300 entries.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 16 << 20;
inline constexpr size_t kMaxSafetensorsEntries = 65536;
inline constexpr size_t kMaxShards = 1024;

// Adds a file's text tensors under their canonical names; vision and audio towers are ignored.
// `bytes` is the whole untrusted file and outlives the tensors, `file` its name for messages.
// kInvalidArgument unless: lengths and offsets lie in the file, the data has no gap or overlap,
// sizes match shapes, each name occurs once and below a known prefix, and text tensors are F32, F16
// or BF16, at aligned places.
absl::Status AddSafetensors(std::string_view bytes, std::string_view file, TensorMap& tensors);

// The distinct shard files a model.safetensors.index.json names, sorted. None has a directory part.
absl::StatusOr<std::vector<std::string>> ParseShardIndex(std::string_view json,
                                                         std::string_view file);

}  // namespace weightless::model
