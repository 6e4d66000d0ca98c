// Runs NormRopeStoreKv and Attention as the forward pass does: sequences with their own data, block
// tables and steps of any cut.
#pragma once

#include <map>
#include <utility>

#include "kernels/rope_table.h"
#include "tests/kernels/kernel_testing.h"

namespace weightless::kernels {

// Rows [begin, end) of a sequence in one step.
struct StepRows {
  int sequence = 0;
  int begin = 0;
  int end = 0;
};

class AttentionRun {
 public:
  // `seed` chooses the block permutation.
  AttentionRun(Backend& backend, const AttentionShape& shape, int num_sequences, int max_len,
               uint32_t seed)
      : backend_(backend),
        shape_(shape),
        blocks_per_seq_((max_len + kBlockSize - 1) / kBlockSize),
        rope_(MakeRopeTable({.head_dim = shape.head_dim}, max_len)),
        norm_(Matrix::Random(DType::kF32, 1, shape.head_dim, 1)) {
    const int num_blocks = num_sequences * blocks_per_seq_ + 3;
    const size_t size_bytes =
        static_cast<size_t>(num_blocks) * backend.KvBlockBytes(shape.num_kv_heads, shape.head_dim);
    buffer_ = backend.Allocate(size_bytes);
    layer_ = {buffer_->data(), num_blocks, shape.num_kv_heads, shape.head_dim};
    for (int i = 0; i < num_blocks; ++i) blocks_.push_back(i);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(seed));
  }

  // As if an earlier sequence had left NaNs everywhere.
  void Poison() { std::memset(buffer_->data(), 0xff, buffer_->size_bytes()); }

  // Multiplies the queries' norm: large values make one score dominate, 0 makes all equal.
  void ScaleQueries(float factor) { query_scale_ = factor; }

  // Output rows of the step, in order.
  Matrix Step(const std::vector<StepRows>& rows) {
    const DType type = backend_.activation_type();
    const int64_t width = int64_t{shape_.num_heads + 2 * shape_.num_kv_heads} * shape_.head_dim;
    std::vector<int32_t> positions, mapping, cu_seqlens = {0}, context_lens, slots;
    for (const StepRows& r : rows) {
      slots.push_back(r.sequence);
      for (int position = r.begin; position < r.end; ++position) {
        positions.push_back(position);
        mapping.push_back(BlockOf(r.sequence, position / kBlockSize) * kBlockSize +
                          position % kBlockSize);
      }
      cu_seqlens.push_back(static_cast<int32_t>(positions.size()));
      context_lens.push_back(r.end);
    }
    const auto num_tokens = static_cast<int>(positions.size());
    Matrix qkv(DType::kF32, num_tokens, width);
    int64_t i = 0;
    for (const StepRows& r : rows) {
      for (int position = r.begin; position < r.end; ++position) {
        std::mt19937 random(static_cast<uint32_t>(r.sequence * 100003 + position));
        std::normal_distribution<float> normal;
        for (int64_t column = 0; column < width; ++column) qkv.Set(i++, normal(random));
      }
    }
    const PoolBatch batch{.num_tokens = num_tokens,
                          .num_seqs = static_cast<int>(rows.size()),
                          .positions = positions.data(),
                          .cu_seqlens_q = cu_seqlens.data(),
                          .context_lens = context_lens.data(),
                          .slots = slots.data(),
                          .slot_mapping = mapping.data(),
                          .block_tables = blocks_.data(),
                          .max_blocks_per_seq = blocks_per_seq_,
                          .host_cu_seqlens_q = cu_seqlens.data(),
                          .host_context_lens = context_lens.data()};
    Matrix q_norm = norm_;
    for (int64_t d = 0; d < shape_.head_dim; ++d) q_norm.Set(d, norm_.At(d) * query_scale_);
    const auto table_rows = static_cast<int64_t>(rope_.cos.size()) / (shape_.head_dim / 2);
    const NormRopeInputs in{
        .q_norm = q_norm.view(),
        .k_norm = norm_.view(),
        .rope = {.cos = {rope_.cos.data(), DType::kF32, table_rows, shape_.head_dim / 2},
                 .sin = {rope_.sin.data(), DType::kF32, table_rows, shape_.head_dim / 2}}};
    const int64_t out_width = int64_t{shape_.num_heads} * shape_.head_dim;
    Matrix q(type, num_tokens, out_width);
    Matrix out(type, num_tokens, out_width);
    backend_.NormRopeStoreKv(qkv.view(), in, shape_, batch, layer_, q.view());
    backend_.Attention(q.view(), shape_, batch, layer_, out.view());
    out.ExpectGuardsIntact();
    return out;
  }

 private:
  int32_t BlockOf(int sequence, int index) const {
    return blocks_[static_cast<size_t>(sequence * blocks_per_seq_ + index)];
  }

  Backend& backend_;
  AttentionShape shape_;
  int blocks_per_seq_;
  HostRopeTable rope_;
  Matrix norm_;
  std::unique_ptr<Buffer> buffer_;
  KvLayer layer_;
  std::vector<int32_t> blocks_;  // row s is the table of sequence s
  float query_scale_ = 1;
};

}  // namespace weightless::kernels
