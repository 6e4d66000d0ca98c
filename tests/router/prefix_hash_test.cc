#include "router/prefix_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace weightless::router {
namespace {

// The message 00 01 .. 0f under the key 00 01 .. 0f, as OpenSSL's SIPHASH with 16 bytes of output
// gives it.
TEST(PrefixHashTest, IsSipHash) {
  const PrefixHasher hasher(0x0706050403020100, 0x0f0e0d0c0b0a0908);
  const PrefixHash hash = hasher.Next({.low = 0x0706050403020100, .high = 0x0f0e0d0c0b0a0908}, {});
  EXPECT_EQ(hash.low, 0xbb54b067caa4e26e);
  EXPECT_EQ(hash.high, 0x77052385bf1533fd);
}

TEST(PrefixHashTest, DependsOnEveryToken) {
  const PrefixHasher hasher(1, 2);
  const PrefixHash root = hasher.Root("weights", "");
  std::vector<int32_t> tokens(64, 7);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto add = [&] {
    const PrefixHash hash = hasher.Next(root, tokens);
    return seen.emplace(hash.low, hash.high).second;
  };
  EXPECT_TRUE(add());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = 8;
    EXPECT_TRUE(add()) << i;
    tokens[i] = 7;
  }
  EXPECT_FALSE(add());
}

TEST(PrefixHashTest, DependsOnAllBefore) {
  const PrefixHasher hasher(1, 2);
  const std::array<int32_t, 4> a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
  const PrefixHash root = hasher.Root("weights", "");
  EXPECT_FALSE(hasher.Next(hasher.Next(root, a), b) == hasher.Next(root, b));
  EXPECT_FALSE(hasher.Next(hasher.Next(root, a), b) == hasher.Next(hasher.Next(root, b), a));
}

TEST(PrefixHashTest, SaltWeightsAndKeySeparate) {
  const PrefixHasher hasher(1, 2);
  const PrefixHash root = hasher.Root("weights", "salt");
  EXPECT_TRUE(root == hasher.Root("weights", "salt"));
  EXPECT_FALSE(root == hasher.Root("weights", "other"));
  EXPECT_FALSE(root == hasher.Root("other", "salt"));
  EXPECT_FALSE(root == hasher.Root("weightss", "alt"));
  EXPECT_FALSE(root == PrefixHasher(1, 3).Root("weights", "salt"));
}

}  // namespace
}  // namespace weightless::router
