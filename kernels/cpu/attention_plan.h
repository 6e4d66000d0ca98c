// How the attention of one step is cut into units of work. A tile is some consecutive query rows of
// one sequence with all query heads of one kv head. Keys are taken in blocks of 64 in rising order
// and blocks in chunks of 256 absolute positions, each with a running maximum of its own; chunks
// are merged in rising order. That order never varies, so a tile's chunks may be computed one after
// the other, or each by another thread (a few long sequences), with the same result.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace weightless::kernels {

inline constexpr int kBlocksPerChunk = 4;
// Query rows times query heads in a tile, at most; but always at least one row.
inline constexpr int kTileHeads = 64;
inline constexpr int kSplitTileHeads = 16;  // tiles of more, unless of one row, are never split

struct AttentionTile {
  int sequence = 0;
  int kv_head = 0;
  int first_row = 0;  // row of q
  int num_rows = 0;
  int first_position = 0;  // of first_row
  int first_block = 0;     // blocks [first_block, last_block] hold every key a row of it sees
  int last_block = 0;
};

struct AttentionUnit {
  AttentionTile tile;    // with the blocks of this unit
  int64_t partial = -1;  // >= 0: one chunk, whose result goes to this slot
};

struct AttentionPlan {
  std::vector<AttentionUnit> units;
  // Tiles whose chunks were split: their partials are [first_partial, first_partial + num_chunks).
  struct Merge {
    AttentionTile tile;
    int64_t first_partial = 0;
    int64_t num_chunks = 0;
  };
  std::vector<Merge> merges;
  int64_t num_partials = 0;
};

void PlanAttention(const AttentionShape& shape, const PoolBatch& batch, int num_threads,
                   AttentionPlan& plan);

}  // namespace weightless::kernels
