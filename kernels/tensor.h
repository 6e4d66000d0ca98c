// A pointer with a type and a shape.
#pragma once

#include <cstdint>

#include "common/check.h"
#include "kernels/dtypes.h"

namespace weightless::kernels {

// Row-major matrix [rows, cols], contiguous, in the memory of the backend that gets it. Does not
// own.
struct TensorView {
  void* data = nullptr;
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;

  float* f32() const {
    CHECK(type == DType::kF32);
    return static_cast<float*>(data);
  }
  BF16* bf16() const {
    CHECK(type == DType::kBF16);
    return static_cast<BF16*>(data);
  }
  // The first `count` rows.
  TensorView Rows(int64_t count) const {
    CHECK(count <= rows);
    return {data, type, count, cols};
  }
};

}  // namespace weightless::kernels
