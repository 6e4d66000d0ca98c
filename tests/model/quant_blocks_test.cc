#include "model/quant_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/tensor.h"

namespace weightless::model {
namespace {

std::vector<std::byte> ToBytes(const auto& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(values[0]));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// Each type of the file tests/golden/make_quant_blocks.py wrote, bit for bit.
TEST(QuantBlocksTest, EveryBlockTypeExpandsAsTheReferenceDoes) {
  std::ifstream file(std::string(WEIGHTLESS_SOURCE_DIR) + "/tests/golden/quant_blocks.bin",
                     std::ios::binary);
  const std::string golden(std::istreambuf_iterator<char>(file), {});
  size_t position = 0;
  int num_types = 0;
  while (position < golden.size()) {
    const std::string name = golden.substr(position, 8).c_str();
    uint32_t num_blocks = 0;
    std::memcpy(&num_blocks, golden.data() + position + 8, sizeof(num_blocks));
    position += 12;
    StorageType type = StorageType::kF32;
    for (int i = 0; i <= static_cast<int>(StorageType::kQ6_K); ++i) {
      if (name == FormatOf(static_cast<StorageType>(i)).name) type = static_cast<StorageType>(i);
    }
    const StorageFormat& format = FormatOf(type);
    ASSERT_EQ(name, format.name);
    const size_t num_values = num_blocks * static_cast<size_t>(format.block_size);
    const size_t blocks_bytes = num_blocks * static_cast<size_t>(format.block_bytes);
    ASSERT_LE(position + blocks_bytes + num_values * sizeof(float), golden.size());
    std::vector<float> expected(num_values);
    std::memcpy(expected.data(), golden.data() + position + blocks_bytes,
                num_values * sizeof(float));
    std::vector<float> actual(num_values);
    Dequantize(type, reinterpret_cast<const std::byte*>(golden.data() + position),
               static_cast<int64_t>(num_values), actual.data());
    for (size_t i = 0; i < num_values; ++i) {
      ASSERT_EQ(Bits(actual[i]), Bits(expected[i])) << name << " value " << i;
    }
    position += blocks_bytes + num_values * sizeof(float);
    ++num_types;
  }
  EXPECT_EQ(num_types, 10);
}

TEST(QuantBlocksTest, EveryHalfValueIsExact) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  Dequantize(StorageType::kF16, ToBytes(halves).data(), 65536, values.data());
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31;
    const int mantissa = i & 1023;
    const float sign = i >= 32768 ? -1.0f : 1.0f;
    const float value = values[static_cast<size_t>(i)];
    if (exponent == 31) {
      EXPECT_EQ(std::isinf(value), mantissa == 0) << i;
      EXPECT_EQ(std::isnan(value), mantissa != 0) << i;
      EXPECT_EQ(std::signbit(value), i >= 32768) << i;
    } else {
      const float magnitude = exponent == 0
                                  ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
      EXPECT_EQ(Bits(value), Bits(sign * magnitude)) << i;
    }
  }
}

TEST(QuantBlocksTest, Bfloat16IsTheUpperHalfOfAFloat) {
  const std::vector<uint16_t> halves = {0x3f80, 0xc0a0, 0x0001, 0x8000, 0x7f80};
  std::vector<float> values(halves.size());
  Dequantize(StorageType::kBF16, ToBytes(halves).data(), 5, values.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(Bits(values[i]), static_cast<uint32_t>(halves[i]) << 16);
  }
}

TEST(QuantBlocksTest, BlocksNeedNoAlignment) {
  const std::vector<float> numbers = {1.5f, -2.25f};
  std::vector<std::byte> shifted(1);
  const std::vector<std::byte> bytes = ToBytes(numbers);
  shifted.insert(shifted.end(), bytes.begin(), bytes.end());
  std::vector<float> values(2);
  Dequantize(StorageType::kF32, shifted.data() + 1, 2, values.data());
  EXPECT_EQ(values, numbers);
}

TEST(ReadRowsTest, ReadsTheRowsAskedFor) {
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::byte> bytes = ToBytes(numbers);
  const Tensor tensor{"t", StorageType::kF32, {4, 2}, bytes};
  std::vector<float> rows(4);
  ReadRows(tensor, 1, 2, rows.data());
  EXPECT_EQ(rows, (std::vector<float>{2, 3, 4, 5}));
  ReadRows(tensor, 4, 0, nullptr);
  EXPECT_DEATH(ReadRows(tensor, 3, 2, rows.data()), "CHECK failed");
  EXPECT_DEATH(ReadRows(tensor, -1, 1, rows.data()), "CHECK failed");
}

}  // namespace
}  // namespace weightless::model
