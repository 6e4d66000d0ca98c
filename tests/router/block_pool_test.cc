#include "router/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weightless::router {
namespace {

PrefixHash Hash(uint64_t value) { return {.low = value, .high = ~value}; }

TEST(BlockPoolTest, GivesEveryBlockOnce) {
  BlockPool pool(3);
  const std::vector<uint32_t> blocks = {pool.Allocate(), pool.Allocate(), pool.Allocate()};
  EXPECT_THAT(blocks, testing::UnorderedElementsAre(0u, 1u, 2u));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_used(), 3);
}

TEST(BlockPoolTest, SharedBlockIsFreeAfterItsLastReference) {
  BlockPool pool(1);
  const uint32_t block = pool.Allocate();
  pool.Ref(block);
  pool.Unref(block);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Unref(block);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, PublishedBlockIsFoundWhileFree) {
  BlockPool pool(2);
  const uint32_t block = pool.Allocate();
  pool.Publish(block, Hash(1));
  pool.Unref(block);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.Find(Hash(1)), block);
  pool.Ref(block);
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(BlockPoolTest, ForgetsTheLeastRecentlyUsedPrefix) {
  BlockPool pool(3);
  std::vector<uint32_t> blocks;
  for (uint64_t i = 0; i < 3; ++i) {
    blocks.push_back(pool.Allocate());
    pool.Publish(blocks.back(), Hash(i));
  }
  for (const int i : {1, 0, 2}) pool.Unref(blocks[static_cast<size_t>(i)]);
  pool.Ref(blocks[1]);
  pool.Unref(blocks[1]);  // used again: now the youngest
  pool.Allocate();
  EXPECT_FALSE(pool.Find(Hash(0)).has_value());
  EXPECT_TRUE(pool.Find(Hash(1)).has_value());
  EXPECT_TRUE(pool.Find(Hash(2)).has_value());
}

TEST(BlockPoolTest, TakesBlocksWithoutAPrefixFirst) {
  BlockPool pool(2);
  const uint32_t cached = pool.Allocate();
  const uint32_t plain = pool.Allocate();
  pool.Publish(cached, Hash(1));
  pool.Unref(cached);
  pool.Unref(plain);
  EXPECT_EQ(pool.Allocate(), plain);
}

TEST(BlockPoolTest, FirstBlockOfAPrefixIsKept) {
  BlockPool pool(2);
  const uint32_t first = pool.Allocate();
  const uint32_t second = pool.Allocate();
  pool.Publish(first, Hash(1));
  pool.Publish(second, Hash(1));
  EXPECT_EQ(pool.Find(Hash(1)), first);
  pool.Unref(second);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(BlockPoolTest, StaysConsistentUnderRandomOperations) {
  constexpr int kNumBlocks = 20;
  BlockPool pool(kNumBlocks);
  std::minstd_rand random(7);
  std::vector<uint32_t> held;  // one entry for each reference
  for (int i = 0; i < 100'000; ++i) {
    const auto pick = [&] { return held[random() % held.size()]; };
    switch (random() % 4) {
      case 0:
        if (pool.num_free() > 0) held.push_back(pool.Allocate());
        break;
      case 1:
        if (!held.empty()) {
          std::swap(held[random() % held.size()], held.back());
          pool.Unref(held.back());
          held.pop_back();
        }
        break;
      case 2:
        if (!held.empty()) pool.Publish(pick(), Hash(random() % 40));
        break;
      default:
        if (const auto found = pool.Find(Hash(random() % 40)); found && held.size() < 100) {
          pool.Ref(*found);
          held.push_back(*found);
        }
    }
    pool.CheckInvariants();
    std::vector<uint32_t> distinct = held;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    ASSERT_EQ(pool.num_used(), static_cast<int>(distinct.size()));
  }
}

}  // namespace
}  // namespace weightless::router
