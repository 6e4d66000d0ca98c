#include "worker/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weightless::worker {
namespace {

using model::LayerType;

// Five sliding layers of window 128 and one full layer.
model::ModelConfig SixLayers() {
  model::ModelConfig config;
  config.sliding_window = 128;
  for (int i = 0; i < 6; ++i) {
    model::LayerConfig layer;
    layer.type = i == 5 ? LayerType::kFull : LayerType::kSliding;
    layer.num_heads = 2;
    layer.num_kv_heads = 1;
    layer.head_dim = 16;
    config.layers.push_back(layer);
  }
  return config;
}

constexpr KvDemand kDemand{.num_slots = 10, .max_length = 1000, .max_step_tokens = 64};

class KvCacheTest : public testing::Test {
 protected:
  size_t Bytes(KvBlocks blocks) const {
    const KvBytes bytes = KvSize(config_, *backend_, blocks);
    return bytes.full + bytes.sliding;
  }

  const model::ModelConfig config_ = SixLayers();
  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeReferenceBackend(kernels::DType::kBF16);
};

TEST_F(KvCacheTest, TakesNoMoreThanEverySlotCanUse) {
  const auto blocks = PlanKvBlocks(config_, *backend_, kDemand, size_t{1} << 40);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->full, 10 * 16);
  EXPECT_EQ(blocks->sliding, 10 * 2 * 4);
}

TEST_F(KvCacheTest, StaysWithinTheBudget) {
  const size_t least = Bytes({.full = 16, .sliding = 4});
  for (const size_t budget : {least, least + 1, 2 * least, 5 * least}) {
    const auto blocks = PlanKvBlocks(config_, *backend_, kDemand, budget);
    ASSERT_TRUE(blocks.ok()) << blocks.status();
    EXPECT_GE(blocks->full, 16);
    EXPECT_GE(blocks->sliding, 4);
    EXPECT_LE(Bytes(*blocks), budget);
  }
}

TEST_F(KvCacheTest, RefusesLessThanOneSequence) {
  const size_t least = Bytes({.full = 16, .sliding = 4});
  const auto blocks = PlanKvBlocks(config_, *backend_, kDemand, least - 1);
  EXPECT_EQ(blocks.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(blocks.status().message()),
      testing::HasSubstr(std::to_string(least) + " bytes, limit " + std::to_string(least - 1)));
}

TEST_F(KvCacheTest, HasNoSlidingPoolWithoutSlidingLayers) {
  model::ModelConfig config = config_;
  config.layers.erase(config.layers.begin(), config.layers.begin() + 5);
  const auto blocks = PlanKvBlocks(config, *backend_, kDemand, size_t{1} << 40);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->sliding, 0);
}

TEST_F(KvCacheTest, GivesEachLayerThePoolOfItsType) {
  const auto cache = KvCache::Create(config_, {.full = 3, .sliding = 7}, *backend_);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->layer(0).num_blocks, 7);
  EXPECT_EQ(cache->layer(5).num_blocks, 3);
}

}  // namespace
}  // namespace weightless::worker
