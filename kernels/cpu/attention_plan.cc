#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "common/check.h"

namespace weightless::kernels {
namespace {

void AddTiles(const AttentionShape& shape, const PoolBatch& batch, int sequence,
              std::vector<AttentionUnit>& units) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int rows_per_tile = std::max(1, kTileHeads / group);
  const int begin = batch.host_cu_seqlens_q[sequence];
  const int end = batch.host_cu_seqlens_q[sequence + 1];
  const int context_len = batch.host_context_lens[sequence];
  CHECK(begin >= 0 && begin <= end && end <= batch.num_tokens && end - begin <= context_len);
  CHECK((context_len + kBlockSize - 1) / kBlockSize <= batch.max_blocks_per_seq);
  for (int row = begin; row < end; row += rows_per_tile) {
    AttentionTile tile{.sequence = sequence, .first_row = row};
    tile.num_rows = std::min(rows_per_tile, end - row);
    tile.first_position = context_len - (end - row);
    const int first_key =
        shape.window > 0 ? std::max(0, tile.first_position - shape.window + 1) : 0;
    tile.first_block = first_key / kBlockSize;
    tile.last_block = (tile.first_position + tile.num_rows - 1) / kBlockSize;
    for (tile.kv_head = 0; tile.kv_head < shape.num_kv_heads; ++tile.kv_head) {
      units.push_back({tile, -1});
    }
  }
}

// Replaces each small unit of several chunks by one unit for each chunk and a merge.
void SplitChunks(const AttentionShape& shape, AttentionPlan& plan) {
  const int max_rows = std::max(1, kSplitTileHeads * shape.num_kv_heads / shape.num_heads);
  std::vector<AttentionUnit> whole;
  whole.swap(plan.units);
  for (const AttentionUnit& unit : whole) {
    const int first_chunk = unit.tile.first_block / kBlocksPerChunk;
    const int last_chunk = unit.tile.last_block / kBlocksPerChunk;
    if (first_chunk == last_chunk || unit.tile.num_rows > max_rows) {
      plan.units.push_back(unit);
      continue;
    }
    plan.merges.push_back({unit.tile, plan.num_partials, last_chunk - first_chunk + 1});
    for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
      AttentionUnit part{unit.tile, plan.num_partials++};
      part.tile.first_block = std::max(unit.tile.first_block, chunk * kBlocksPerChunk);
      part.tile.last_block =
          std::min(unit.tile.last_block, chunk * kBlocksPerChunk + kBlocksPerChunk - 1);
      plan.units.push_back(part);
    }
  }
}

}  // namespace

void PlanAttention(const AttentionShape& shape, const PoolBatch& batch, int num_threads,
                   AttentionPlan& plan) {
  plan.units.clear();
  plan.merges.clear();
  plan.num_partials = 0;
  for (int sequence = 0; sequence < batch.num_seqs; ++sequence) {
    AddTiles(shape, batch, sequence, plan.units);
  }
  if (num_threads > 1 && plan.units.size() < 4 * static_cast<size_t>(num_threads)) {
    SplitChunks(shape, plan);
  }
}

}  // namespace weightless::kernels
