#include <algorithm>
#include <cmath>

#include "kernels/reference/ops.h"

namespace weightless::kernels::reference {
namespace {

// What one query head sees: keys [first, last] of its sequence.
struct Visible {
  const int32_t* block_table;
  int32_t first;
  int32_t last;
  int kv_head;
  int64_t Slot(int32_t position) const {
    return int64_t{block_table[position / kBlockSize]} * kBlockSize + position % kBlockSize;
  }
};

void AttendHead(const TensorView& q, int64_t q_index, const Visible& keys, float scale,
                const KvLayer& layer, const TensorView& out) {
  const int d = layer.head_dim;
  std::vector<double> scores;
  double max = -HUGE_VAL;
  for (int32_t j = keys.first; j <= keys.last; ++j) {
    const TensorView k = KeyRow(layer, q.type, keys.Slot(j), keys.kv_head);
    double score = 0;
    for (int i = 0; i < d; ++i) score += double{Load(q, q_index + i)} * double{Load(k, i)};
    scores.push_back(score * double{scale});
    max = std::max(max, scores.back());
  }
  std::vector<double> sum(static_cast<size_t>(d), 0.0);
  double total = 0;
  for (int32_t j = keys.first; j <= keys.last; ++j) {
    const TensorView v = ValueRow(layer, q.type, keys.Slot(j), keys.kv_head);
    const double p = std::exp(scores[static_cast<size_t>(j - keys.first)] - max);
    total += p;
    for (int i = 0; i < d; ++i) sum[static_cast<size_t>(i)] += p * double{Load(v, i)};
  }
  for (int i = 0; i < d; ++i) {
    Store(out, q_index + i, static_cast<float>(sum[static_cast<size_t>(i)] / total));
  }
}

}  // namespace

void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
               const KvLayer& layer, TensorView out) {
  const int group = shape.num_heads / shape.num_kv_heads;
  for (int s = 0; s < batch.num_seqs; ++s) {
    const int32_t rows = batch.cu_seqlens_q[s + 1] - batch.cu_seqlens_q[s];
    CHECK(rows >= 0 && rows <= batch.context_lens[s]);
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t position = batch.context_lens[s] - rows + r;
      Visible keys{
          .block_table = batch.block_tables + int64_t{batch.slots[s]} * batch.max_blocks_per_seq,
          .first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0,
          .last = position,
          .kv_head = 0};
      CHECK(position / kBlockSize < batch.max_blocks_per_seq);
      for (int h = 0; h < shape.num_heads; ++h) {
        keys.kv_head = h / group;
        const int64_t row = batch.cu_seqlens_q[s] + r;
        AttendHead(q, row * q.cols + int64_t{h} * shape.head_dim, keys, shape.scale, layer, out);
      }
    }
  }
}

}  // namespace weightless::kernels::reference
