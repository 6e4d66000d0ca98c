#include "model/identity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weightless::model {
namespace {

std::string Digest(const std::vector<std::byte>& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  TensorMap tensors;
  tensors["t"] = {"t", StorageType::kBF16, {size / 2}, bytes};
  return DigestModel({}, tensors);
}

TEST(IdentityTest, SmallTensorsCountToTheLastByte) {
  std::vector<std::byte> bytes(4 << 20);
  const std::string first = Digest(bytes);
  for (const size_t position : {size_t{0}, size_t{1234567}, bytes.size() - 1}) {
    bytes[position] = std::byte{1};
    EXPECT_NE(Digest(bytes), first) << position;
    bytes[position] = std::byte{0};
  }
  EXPECT_EQ(Digest(bytes), first);
}

TEST(IdentityTest, LargeTensorsCountInWindowsFromTheFirstByteToTheLast) {
  std::vector<std::byte> bytes((16 << 20) + 2);
  const std::string first = Digest(bytes);
  size_t num_seen = 0;
  for (const size_t position :
       {size_t{0}, size_t{16383}, bytes.size() / 2, bytes.size() - 16384, bytes.size() - 1}) {
    bytes[position] = std::byte{1};
    if (Digest(bytes) != first) ++num_seen;
    bytes[position] = std::byte{0};
  }
  EXPECT_GE(num_seen, 4u);  // the middle may fall between two windows
}

TEST(IdentityTest, NamesTypesShapesAndConfigurationsCount) {
  const std::vector<std::byte> bytes(32);
  const auto digest = [&bytes](const char* name, StorageType type, std::vector<int64_t> shape,
                               double eps) {
    TensorMap tensors;
    tensors[name] = {name, type, std::move(shape), bytes};
    ModelConfig config;
    config.norm_eps = eps;
    return DigestModel(config, tensors);
  };
  const std::string first = digest("a", StorageType::kF16, {16}, 1e-6);
  EXPECT_EQ(digest("a", StorageType::kF16, {16}, 1e-6), first);
  EXPECT_NE(digest("b", StorageType::kF16, {16}, 1e-6), first);
  EXPECT_NE(digest("a", StorageType::kBF16, {16}, 1e-6), first);
  EXPECT_NE(digest("a", StorageType::kF16, {2, 8}, 1e-6), first);
  EXPECT_NE(digest("a", StorageType::kF16, {16}, 1e-5), first);
}

}  // namespace
}  // namespace weightless::model
