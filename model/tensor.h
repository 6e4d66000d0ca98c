// A named array as it lies in a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/quant_blocks.h"

namespace weightless::model {

// Row-major, shape.back() contiguous; one- or two-dimensional, no dimension zero. Each row is whole
// blocks of the type, and data is exactly the rows.
struct Tensor {
  std::string name;  // canonical, see Checkpoint
  StorageType type = StorageType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;

  int64_t num_rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t row_size() const { return shape.back(); }
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;

// Rows [first, first + count) as float32, dequantised as quant_blocks.h says.
// out holds count * row_size() values. CHECK-fails on rows outside the tensor. Thread-safe.
void ReadRows(const Tensor& tensor, int64_t first, int64_t count, float* out);

}  // namespace weightless::model
