#include "router/kv_pools.h"

#include <gtest/gtest.h>

#include "tests/router/cluster.h"
#include "tests/support/fake_engine.h"

namespace weightless::router {
namespace {

using testing::MakeRequest;
using testing::TinyGeometry;

// Blocks of 4 tokens, a window of 10.
std::unique_ptr<Sequence> Make(int prompt_len, int64_t seed = 1) {
  return MakeSequence(MakeRequest(prompt_len, 50, seed), nullptr,
                      testing::FakeDescription({}, TinyGeometry()), PrefixHasher(1, 2));
}

// Admits a sequence, computes its prompt and offers it to the cache.
std::unique_ptr<Sequence> Prefill(KvPools& pools, int prompt_len, int64_t seed = 1) {
  auto sequence = Make(prompt_len, seed);
  sequence->on.num_known = prompt_len;
  pools.Admit(*sequence, 0);
  while (sequence->on.num_computed < prompt_len) {
    const int num_tokens =
        pools.Cover(*sequence, std::min(4, prompt_len - sequence->on.num_computed));
    EXPECT_GT(num_tokens, 0);
    sequence->on.num_computed += num_tokens;
    pools.Publish(*sequence);
  }
  pools.CheckInvariants();
  return sequence;
}

TEST(KvPoolsTest, CapacityIsWhatOneSequenceCanHold) {
  proto::Geometry geometry = TinyGeometry();
  EXPECT_EQ(KvPools::Capacity(geometry), 256);
  geometry.set_num_sliding_blocks(4);  // a window: 4 blocks, when it begins inside one
  EXPECT_EQ(KvPools::Capacity(geometry), 256);
  geometry.set_num_sliding_blocks(3);
  EXPECT_EQ(KvPools::Capacity(geometry), 12);
  geometry.set_num_sliding_blocks(0);
  EXPECT_EQ(KvPools::Capacity(geometry), 256);
}

TEST(KvPoolsTest, FullPoolKeepsAllAndSlidingTheWindow) {
  KvPools pools(TinyGeometry());
  const auto sequence = Prefill(pools, 40);
  EXPECT_EQ(pools.full().num_used(), 10);
  // The last chunk computed 36 .. 39, which see 27 and later: blocks 6 .. 9.
  EXPECT_EQ(sequence->on.sliding.begin, 6);
  EXPECT_EQ(pools.sliding().num_used(), 4);
}

TEST(KvPoolsTest, FindsTheLongestPrefixWhoseWindowIsThere) {
  KvPools pools(TinyGeometry());
  auto sequence = Prefill(pools, 40);
  const auto& hashes = sequence->hashes;
  pools.Release(*sequence);
  EXPECT_EQ(pools.FindPrefix(hashes, 10), 10);
  EXPECT_EQ(pools.FindPrefix(hashes, 9), 9);  // what fell behind the window is still cached
  EXPECT_EQ(pools.FindPrefix({}, 10), 0);
}

TEST(KvPoolsTest, AHoleInTheWindowShortensThePrefix) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_sliding_blocks(6);
  KvPools pools(geometry);
  auto first = Prefill(pools, 40);  // blocks 4 and 5 of the sliding pool are cached, 6 .. 9 held
  pools.Release(*first);
  EXPECT_EQ(pools.FindPrefix(first->hashes, 10), 10);
  EXPECT_EQ(pools.FindPrefix(first->hashes, 9), 9);  // sees blocks 6 .. 8
  EXPECT_EQ(pools.FindPrefix(first->hashes, 6), 0);  // would see 3, which is gone
  auto second = Prefill(pools, 16, 2);               // takes the four used longest ago
  EXPECT_EQ(pools.FindPrefix(first->hashes, 10), 0);
  pools.Release(*second);
  pools.CheckInvariants();
}

TEST(KvPoolsTest, CoversAsManyTokensAsThereAreBlocks) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_sliding_blocks(4);
  KvPools pools(geometry);
  auto sequence = Make(60);
  sequence->on.num_known = 60;
  pools.Admit(*sequence, 0);
  EXPECT_EQ(pools.Cover(*sequence, 32), 16);
  sequence->on.num_computed = 16;
  EXPECT_EQ(pools.Cover(*sequence, 32), 4);  // one block fell behind the window
  EXPECT_EQ(pools.sliding().num_used(), 4);
}

TEST(KvPoolsTest, CachedBlocksOfTheSequenceItselfAreNoRoom) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_full_blocks(10);
  KvPools pools(geometry);
  auto sequence = Prefill(pools, 36);
  pools.Release(*sequence);
  EXPECT_EQ(pools.full().num_free(), 10);
  KvPools::Demand demand;
  demand.hashes = sequence->hashes;
  demand.num_cached = 9;
  demand.num_tokens = 40;
  EXPECT_TRUE(pools.CanAdmit(demand));
  demand.num_tokens = 41;
  EXPECT_FALSE(pools.CanAdmit(demand));
}

TEST(KvPoolsTest, ReusesTheEndOfAReleasedSequenceFirst) {
  KvPools pools(TinyGeometry());
  auto sequence = Prefill(pools, 40);
  pools.Release(*sequence);
  for (int i = 0; i < 54 + 3; ++i) {
    auto other = Make(4, 100 + i);
    other->on.num_known = 4;
    pools.Admit(*other, 0);
  }
  EXPECT_FALSE(pools.full().Find(sequence->hashes[9]).has_value());
  EXPECT_TRUE(pools.full().Find(sequence->hashes[6]).has_value());
}

}  // namespace
}  // namespace weightless::router
