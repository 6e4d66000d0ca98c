// The element and block formats tensors are stored in, and their expansion to float32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weightless::model {

enum class StorageType {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

// A row is whole blocks of block_size values in block_bytes bytes. Plain elements are blocks of 1.
struct StorageFormat {
  const char* name;
  int block_size;
  int block_bytes;
};
const StorageFormat& FormatOf(StorageType type);

// Expands num_values values, a multiple of the block size, from `blocks` to `out`; they must not
// overlap. `blocks` needs no alignment. Every product is rounded to float32 in the order of
// llama.cpp's reference (no fused multiply-add), so the result is the same bits on every machine.
// Cost: one pass, some 1 to 4 ns for 8 values.
void Dequantize(StorageType type, const std::byte* blocks, int64_t num_values, float* out);

}  // namespace weightless::model
