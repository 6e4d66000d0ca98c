#include "worker/kv_cache.h"

#include <algorithm>
#include <utility>

#include "common/concat.h"

namespace weightless::worker {

using kernels::kBlockSize;
using model::LayerType;

namespace {

int64_t BlocksFor(int64_t num_positions) { return (num_positions + kBlockSize - 1) / kBlockSize; }

size_t Total(const KvBytes& bytes) { return bytes.full + bytes.sliding; }

bool HasSliding(const model::ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const auto& layer) { return layer.type == LayerType::kSliding; });
}

}  // namespace

KvBytes KvSize(const model::ModelConfig& config, const kernels::Backend& backend, KvBlocks blocks) {
  KvBytes bytes;
  for (const model::LayerConfig& layer : config.layers) {
    const size_t block_bytes = backend.KvBlockBytes(layer.num_kv_heads, layer.head_dim);
    if (layer.type == LayerType::kSliding) {
      bytes.sliding += static_cast<size_t>(blocks.sliding) * block_bytes;
    } else {
      bytes.full += static_cast<size_t>(blocks.full) * block_bytes;
    }
  }
  return bytes;
}

absl::StatusOr<KvBlocks> PlanKvBlocks(const model::ModelConfig& config,
                                      const kernels::Backend& backend, const KvDemand& demand,
                                      size_t budget_bytes) {
  const int64_t whole = BlocksFor(demand.max_length);
  // A window and a step of new tokens, which may begin and end inside a block.
  const int64_t window =
      std::min(whole, BlocksFor(config.sliding_window + demand.max_step_tokens) + 1);
  KvBlocks least{.full = whole, .sliding = window};
  KvBlocks most{.full = whole * demand.num_slots,
                .sliding = std::min(whole, 2 * window) * demand.num_slots};
  if (!HasSliding(config)) least.sliding = most.sliding = 0;

  const size_t least_bytes = Total(KvSize(config, backend, least));
  const size_t most_bytes = Total(KvSize(config, backend, most));
  if (budget_bytes < least_bytes) {
    return absl::ResourceExhaustedError(Concat("KV cache of one sequence of ", demand.max_length,
                                               " tokens needs ", least_bytes, " bytes, limit ",
                                               budget_bytes));
  }
  if (budget_bytes >= most_bytes) return most;
  const double share = static_cast<double>(budget_bytes - least_bytes) /
                       static_cast<double>(most_bytes - least_bytes);
  const auto between = [share](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(share * static_cast<double>(high - low));
  };
  return KvBlocks{.full = between(least.full, most.full),
                  .sliding = between(least.sliding, most.sliding)};
}

absl::StatusOr<KvCache> KvCache::Create(const model::ModelConfig& config, KvBlocks blocks,
                                        kernels::Backend& backend) {
  KvCache cache;
  for (const model::LayerConfig& layer : config.layers) {
    const int64_t num_blocks = layer.type == LayerType::kSliding ? blocks.sliding : blocks.full;
    const size_t needed =
        static_cast<size_t>(num_blocks) * backend.KvBlockBytes(layer.num_kv_heads, layer.head_dim);
    std::unique_ptr<kernels::Buffer> buffer = backend.Allocate(needed);
    if (buffer == nullptr) {
      return absl::ResourceExhaustedError(
          Concat("no device memory for the KV cache: ", Total(KvSize(config, backend, blocks)),
                 " bytes for ", blocks.full, " full and ", blocks.sliding, " sliding blocks"));
    }
    cache.layers_.push_back({.data = buffer->data(),
                             .num_blocks = num_blocks,
                             .num_kv_heads = layer.num_kv_heads,
                             .head_dim = layer.head_dim});
    cache.buffers_.push_back(std::move(buffer));
  }
  return cache;
}

}  // namespace weightless::worker
