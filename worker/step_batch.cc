#include "worker/step_batch.h"

#include <algorithm>

#include "common/check.h"
#include "common/concat.h"

namespace weightless::worker {

using kernels::kBlockSize;
using kernels::PoolBatch;

namespace {

int NumBlocks(const Run& run) { return (run.end() + kBlockSize - 1) / kBlockSize; }

// The slot mapping of a run's tokens in one pool.
void MapSlots(const Run& run, const std::vector<int32_t>& blocks, int32_t* out) {
  for (int position = run.first; position < run.end(); ++position) {
    *out++ =
        blocks[static_cast<size_t>(position / kBlockSize)] * kBlockSize + position % kBlockSize;
  }
}

// Entries [first, end) of a block table into a row of the batch's.
void CopyTable(const std::vector<int32_t>& blocks, int first, int end, int32_t* row) {
  std::copy(blocks.begin() + first, blocks.begin() + end, row + first);
}

}  // namespace

absl::StatusOr<StepBatch> StepBatch::Create(const PlanLimits& limits, kernels::Backend& backend) {
  const auto num_tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto num_seqs = static_cast<size_t>(limits.num_slots);
  // Ids, positions, two slot mappings, head rows; lengths; two block tables.
  const size_t num_values = 5 * num_tokens + 2 * num_seqs + 1 +
                            2 * num_seqs * static_cast<size_t>(limits.max_blocks_per_seq());
  std::unique_ptr<kernels::Buffer> device = backend.Allocate(num_values * sizeof(int32_t));
  if (device == nullptr) {
    return absl::ResourceExhaustedError(
        Concat("no device memory for the block tables of ", num_seqs, " slots"));
  }
  return StepBatch(num_values, std::move(device), backend);
}

StepInputs StepBatch::Build(std::span<const Run> runs, const Slots& slots,
                            std::span<const int32_t> head_rows) {
  size_t num_tokens = 0;
  int max_blocks = 0;
  for (const Run& run : runs) {
    num_tokens += static_cast<size_t>(run.num_tokens);
    max_blocks = std::max(max_blocks, NumBlocks(run));
  }
  const auto table_width = static_cast<size_t>(max_blocks);
  num_taken_ = 0;
  const std::span<int32_t> token_ids = Take(num_tokens);
  const std::span<int32_t> positions = Take(num_tokens);
  const std::span<int32_t> full_mapping = Take(num_tokens);
  const std::span<int32_t> sliding_mapping = Take(num_tokens);
  const std::span<int32_t> cu_seqlens_q = Take(runs.size() + 1);
  const std::span<int32_t> context_lens = Take(runs.size());
  const std::span<int32_t> full_tables = Take(runs.size() * table_width);
  const std::span<int32_t> sliding_tables = Take(runs.size() * table_width);
  const std::span<int32_t> rows = Take(head_rows.size());

  const int window = slots.limits().sliding_window;
  size_t token = 0;
  cu_seqlens_q[0] = 0;
  for (size_t s = 0; s < runs.size(); ++s) {
    const Run& run = runs[s];
    const Sequence& sequence = slots.sequence(run.slot);
    std::copy_n(sequence.tokens.begin() + run.first, run.num_tokens, &token_ids[token]);
    for (int i = 0; i < run.num_tokens; ++i)
      positions[token + static_cast<size_t>(i)] = run.first + i;
    MapSlots(run, sequence.full_blocks, &full_mapping[token]);
    CopyTable(sequence.full_blocks, 0, NumBlocks(run), full_tables.data() + s * table_width);
    if (window > 0) {
      MapSlots(run, sequence.sliding_blocks, &sliding_mapping[token]);
      CopyTable(sequence.sliding_blocks, std::max(0, run.first - window + 1) / kBlockSize,
                NumBlocks(run), sliding_tables.data() + s * table_width);
    }
    token += static_cast<size_t>(run.num_tokens);
    cu_seqlens_q[s + 1] = static_cast<int32_t>(token);
    context_lens[s] = run.end();
  }
  std::copy(head_rows.begin(), head_rows.end(), rows.begin());
  backend_->Upload(host_.data(), num_taken_ * sizeof(int32_t), device_->data());

  PoolBatch full{.num_tokens = static_cast<int>(num_tokens),
                 .num_seqs = static_cast<int>(runs.size()),
                 .positions = OnDevice(positions),
                 .cu_seqlens_q = OnDevice(cu_seqlens_q),
                 .context_lens = OnDevice(context_lens),
                 .slot_mapping = OnDevice(full_mapping),
                 .block_tables = OnDevice(full_tables),
                 .max_blocks_per_seq = max_blocks};
  PoolBatch sliding = full;
  sliding.slot_mapping = OnDevice(sliding_mapping);
  sliding.block_tables = OnDevice(sliding_tables);
  return {.num_tokens = static_cast<int>(num_tokens),
          .token_ids = OnDevice(token_ids),
          .full = full,
          .sliding = sliding,
          .head_rows = OnDevice(rows)};
}

std::span<int32_t> StepBatch::Take(size_t num_values) {
  CHECK(num_taken_ + num_values <= host_.size());
  const std::span<int32_t> taken(host_.data() + num_taken_, num_values);
  num_taken_ += num_values;
  return taken;
}

const int32_t* StepBatch::OnDevice(std::span<const int32_t> taken) const {
  return static_cast<const int32_t*>(device_->data()) + (taken.data() - host_.data());
}

}  // namespace weightless::worker
