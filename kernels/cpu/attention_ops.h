// Attention of one tile: query rows times the query heads of one kv head, over its blocks of keys.
//
//   for each block of 64 keys:  scores = q K^T                       [heads, 64]
//                               weights = e^(scores - running max)   masked, rounded to Element
//                               values = values * e^(change of max) + weights V   [heads, head_dim]
//
// The weights are rounded to bfloat16 where the engine multiplies bfloat16, and their sum is that
// of the rounded ones, so they still average exactly. Every query head's arithmetic is its own;
// blocks it does not see leave it unchanged bit for bit.
#pragma once

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/engine.h"
#include "kernels/cpu/softmax_state.h"
#include "kernels/cpu/vector_math.h"

namespace weightless::kernels {
namespace {

template <typename Simd, typename Engine, typename Act>
class TileAttention {
 public:
  using Element = typename Engine::Element;

  TileAttention(const AttentionCall& call, const AttentionTile& tile, float* scratch)
      : call_(call),
        tile_(tile),
        group_(call.shape.num_heads / call.shape.num_kv_heads),
        heads_(tile.num_rows * group_),
        dim_(call.shape.head_dim),
        q_stride_(call.layout.padded_dim()),
        scores_(scratch),
        states_(scores_ + heads_ * kBlockSize),
        weights_(reinterpret_cast<Element*>(states_ + 2 * StateFloats(call.shape, heads_))),
        q_(weights_ + heads_ * kBlockSize) {}

  RunningState State(int i) const {
    return {states_ + i * StateFloats(call_.shape, heads_), heads_, dim_};
  }

  void GatherQueries() {
    const Act* q = static_cast<const Act*>(call_.q.data);
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t row = tile_.first_row + h / group_;
      const Act* from = q + row * call_.q.cols + (tile_.kv_head * group_ + h % group_) * dim_;
      Element* to = q_ + h * q_stride_;
      for (int64_t i = 0; i < dim_; i += 16) Simd::Store(to + i, Simd::Load(from + i));
      for (int64_t i = dim_; i < q_stride_; ++i) to[i] = Element{};
    }
  }

  void AddBlock(int block, RunningState& state) {
    const int32_t* table = call_.batch.block_tables + int64_t{call_.batch.slots[tile_.sequence]} *
                                                          call_.batch.max_blocks_per_seq;
    const int64_t block_id = table[block];
    CHECK(block_id >= 0 && block_id < call_.layer.num_blocks);
    const int last_position = tile_.first_position + tile_.num_rows - 1;
    const int last_key = last_position - block * kBlockSize;
    const int num_keys = last_key < kBlockSize ? last_key + 1 : kBlockSize;
    Score(block_id, (num_keys + kPanelRows - 1) / kPanelRows);
    for (int64_t h = 0; h < heads_; ++h) Weigh(block, h, state);
    AddValues(block_id, (num_keys + 31) / 32 * 32, state);
  }

  void Finish(const RunningState& state) {
    Act* out = static_cast<Act*>(call_.out.data);
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t row = tile_.first_row + h / group_;
      Act* to = out + row * call_.out.cols + (tile_.kv_head * group_ + h % group_) * dim_;
      const auto factor = Simd::Set1(1 / state.sum[h]);
      for (int64_t i = 0; i < dim_; i += 16) {
        Simd::Store(to + i, Simd::Mul(Simd::Load(state.values + h * dim_ + i), factor));
      }
    }
  }

 private:
  void Score(int64_t block_id, int num_panels) {
    Product m;
    m.a = q_;
    m.lda = q_stride_;
    m.rows = heads_;
    m.num_panels = num_panels;
    for (int p = 0; p < num_panels; ++p) {
      m.panels[p] = call_.layout.k_panel(call_.layer.data, block_id, tile_.kv_head, p);
    }
    m.steps = call_.layout.k_steps();
    m.c = scores_;
    m.ldc = kBlockSize;
    m.prefetch = heads_ <= 8;
    Engine::Multiply(m);
  }

  // Turns the scores of one query head into weights and moves its state to the new maximum.
  void Weigh(int block, int64_t h, RunningState& state) {
    using F = typename Simd::F;
    const int position = tile_.first_position + static_cast<int>(h / group_);
    const int last = position - block * kBlockSize;
    const int first = call_.shape.window > 0 ? last - call_.shape.window + 1 : 0;
    Element* weights = weights_ + h * kBlockSize;
    F scores[4];
    F largest = Simd::Set1(kNothingSeen);
    for (int v = 0; v < 4; ++v) {
      const F scaled =
          Simd::Mul(Simd::Load(scores_ + h * kBlockSize + v * 16), Simd::Set1(call_.shape.scale));
      scores[v] =
          Simd::SelectLanes(scaled, first - v * 16, last - v * 16, Simd::Set1(kNothingSeen));
      largest = Simd::Max(largest, scores[v]);
    }
    const float old_max = state.max[h];
    const float block_max = last < 0 || first >= kBlockSize ? kNothingSeen : Simd::Largest(largest);
    if (block_max == kNothingSeen) {
      for (int v = 0; v < 4; ++v) Simd::Store(weights + v * 16, Simd::Zero());
      return;
    }
    const float max = block_max > old_max ? block_max : old_max;
    F sums[4];
    for (int v = 0; v < 4; ++v) {
      Simd::Store(weights + v * 16, Exp<Simd>(Simd::Sub(scores[v], Simd::Set1(max))));
      sums[v] = Simd::Load(weights + v * 16);
    }
    const float keep = Shrink<Simd>(old_max, max);
    const float sum =
        Simd::Sum(Simd::Add(Simd::Add(sums[0], sums[1]), Simd::Add(sums[2], sums[3])));
    state.max[h] = max;
    state.sum[h] = state.sum[h] * keep + sum;
    ScaleValues<Simd>(state, h, keep);
  }

  void AddValues(int64_t block_id, int num_keys, const RunningState& state) {
    Product m;
    m.a = weights_;
    m.lda = kBlockSize;
    m.rows = heads_;
    m.steps = call_.layout.v_steps() * num_keys / kBlockSize;
    m.ldc = dim_;
    m.accumulate = true;
    m.prefetch = heads_ <= 8;
    const int64_t num_panels = call_.layout.v_panels();
    for (int64_t p = 0; p < num_panels; p += m.num_panels) {
      m.num_panels = static_cast<int>(num_panels - p < kMaxPanels ? num_panels - p : kMaxPanels);
      for (int i = 0; i < m.num_panels; ++i) {
        m.panels[i] = call_.layout.v_panel(call_.layer.data, block_id, tile_.kv_head, p + i);
      }
      m.c = state.values + p * kPanelRows;
      Engine::Multiply(m);
    }
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
  int64_t group_;
  int64_t heads_;
  int64_t dim_;
  int64_t q_stride_;
  float* scores_;     // [heads, 64]
  float* states_;     // two RunningStates
  Element* weights_;  // [heads, 64]
  Element* q_;        // [heads, padded head_dim]
};

template <typename Simd, typename Engine, typename Act>
void AttendUnit(const AttentionCall& call, const AttentionUnit& unit, float* scratch) {
  TileAttention<Simd, Engine, Act> tile(call, unit.tile, scratch);
  tile.GatherQueries();
  RunningState chunk = tile.State(0);
  RunningState total = tile.State(1);
  chunk.Clear();
  total.Clear();
  if (unit.partial >= 0) {
    const RunningState partial(call.partials + unit.partial * PartialFloats(call.shape),
                               chunk.heads, chunk.head_dim);
    chunk = partial;
    chunk.Clear();
  }
  for (int block = unit.tile.first_block; block <= unit.tile.last_block; ++block) {
    tile.AddBlock(block, chunk);
    const bool ends_chunk = (block + 1) % kBlocksPerChunk == 0 || block == unit.tile.last_block;
    if (!ends_chunk || unit.partial >= 0) continue;
    Merge<Simd>(chunk, total);
    chunk.Clear();
  }
  if (unit.partial < 0) tile.Finish(total);
}

template <typename Simd, typename Engine, typename Act>
void MergeChunks(const AttentionCall& call, const AttentionPlan::Merge& merge, float* scratch) {
  TileAttention<Simd, Engine, Act> tile(call, merge.tile, scratch);
  RunningState total = tile.State(0);
  total.Clear();
  for (int64_t i = 0; i < merge.num_chunks; ++i) {
    float* memory = call.partials + (merge.first_partial + i) * PartialFloats(call.shape);
    Merge<Simd>({memory, total.heads, total.head_dim}, total);
  }
  tile.Finish(total);
}

}  // namespace
}  // namespace weightless::kernels
