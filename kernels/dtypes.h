// Element types and their conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightless::kernels {

enum class DType { kF32, kBF16 };

constexpr size_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }
constexpr std::string_view Name(DType type) { return type == DType::kF32 ? "float32" : "bfloat16"; }

struct BF16 {
  uint16_t bits;
};

constexpr float ToFloat(BF16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; a NaN stays a NaN.
constexpr BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return BF16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return BF16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace weightless::kernels
