// The safetensors reader and the shard index over arbitrary bytes.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "model/safetensors.h"
#include "model/tensor.h"

using namespace weightless::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TensorMap tensors;
  if (AddSafetensors(bytes, "fuzz", tensors).ok()) {
    for (const auto& [name, tensor] : tensors) {
      // All data lies in the file, so this is bounded by it.
      std::vector<float> row(static_cast<size_t>(tensor.row_size()));
      ReadRows(tensor, tensor.num_rows() - 1, 1, row.data());
    }
  }
  const auto shards = ParseShardIndex(bytes, "fuzz");
  if (shards.ok()) {
    CHECK(!shards->empty() && std::is_sorted(shards->begin(), shards->end()));
    for (const std::string& shard : *shards) CHECK(shard.find('/') == std::string::npos);
  }
  return 0;
}
