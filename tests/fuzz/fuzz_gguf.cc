// The GGUF reader, from header to dequantised rows, over arbitrary bytes.
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "model/gguf.h"
#include "model/gguf_header.h"
#include "model/tensor_layout.h"

using namespace weightless::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = GgufHeader::Parse(bytes, "fuzz");
  if (!header.ok()) return 0;
  CHECK(header->size_bytes() <= size && header->data_offset() >= header->size_bytes());
  TensorMap tensors;
  if (!AddGgufTensors(*header, bytes, tensors).ok()) return 0;
  for (const auto& [name, tensor] : tensors) {
    std::vector<float> row(static_cast<size_t>(tensor.row_size()));
    ReadRows(tensor, 0, 1, row.data());
    ReadRows(tensor, tensor.num_rows() - 1, 1, row.data());
  }
  auto config = GgufConfig(*header);
  if (!config.ok()) return 0;
  CHECK(!config->layers.empty() && config->layers.size() <= ConfigLimits::kLayers);
  if (CheckTensors("fuzz", DenseProjections(*config), *config, tensors).ok()) {
    CHECK(tensors.size() >= 2 + 13 * config->layers.size());
  }
  return 0;
}
