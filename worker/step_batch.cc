#include "worker/step_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/concat.h"

namespace weightless::worker {

using kernels::kBlockSize;
using kernels::PoolBatch;

namespace {

// The slot mapping of a run's tokens in one pool.
void MapSlots(const Run& run, const std::vector<int32_t>& blocks, int32_t* out) {
  for (int position = run.first; position < run.end(); ++position) {
    *out++ =
        blocks[static_cast<size_t>(position / kBlockSize)] * kBlockSize + position % kBlockSize;
  }
}

bool IsDecode(const Run& run, const Sequence& sequence) {
  return run.first >= static_cast<int>(sequence.known_tokens.size());
}

}  // namespace

absl::StatusOr<StepBatch> StepBatch::Create(const PlanLimits& limits, kernels::Backend& backend) {
  const auto num_tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto num_slots = static_cast<size_t>(limits.num_slots);
  // Ids, positions, two slot mappings, head rows, their slots, targets; lengths, slots.
  const size_t num_values = 7 * num_tokens + 3 * num_slots + 1;
  const size_t num_entries = 2 * num_slots * static_cast<size_t>(limits.max_blocks_per_seq());
  std::unique_ptr<kernels::Buffer> device = backend.Allocate(num_values * sizeof(int32_t));
  std::unique_ptr<kernels::Buffer> tables = backend.Allocate(num_entries * sizeof(int32_t));
  if (device == nullptr || tables == nullptr) {
    return absl::ResourceExhaustedError(
        Concat("no device memory for the block tables of ", num_slots, " slots"));
  }
  return StepBatch(limits, num_values, std::move(device), std::move(tables), backend);
}

StepBatch::StepBatch(const PlanLimits& limits, size_t num_values,
                     std::unique_ptr<kernels::Buffer> device,
                     std::unique_ptr<kernels::Buffer> tables, kernels::Backend& backend)
    : num_slots_(static_cast<size_t>(limits.num_slots)),
      table_width_(static_cast<size_t>(limits.max_blocks_per_seq())),
      host_(num_values),
      device_(std::move(device)),
      tables_(std::move(tables)),
      backend_(&backend) {}

void StepBatch::UpdateTables(const Slots& slots) {
  for (const TableChange& change : slots.table_changes()) {
    const Sequence& sequence = slots.sequence(change.slot);
    const std::vector<int32_t>& table =
        change.sliding ? sequence.sliding_blocks : sequence.full_blocks;
    backend_->Upload(table.data() + change.first,
                     static_cast<size_t>(change.count) * sizeof(int32_t),
                     Table(change.sliding, change.slot) + change.first);
  }
}

struct StepBatch::Arrays {
  std::span<int32_t> cu_seqlens_q, context_lens, slots;
  std::span<int32_t> positions, full_mapping, sliding_mapping, token_ids;
  std::span<int32_t> head_rows, head_slots, targets;
};

StepBatch::Arrays StepBatch::TakeArrays(size_t token_room, const HeadRows& head, size_t head_room) {
  num_taken_ = 0;
  Arrays a;
  a.cu_seqlens_q = Take(num_slots_ + 1);
  a.context_lens = Take(num_slots_);
  a.slots = Take(num_slots_);
  a.positions = Take(token_room);
  a.full_mapping = Take(token_room);
  a.sliding_mapping = Take(token_room);
  a.token_ids = Take(token_room);
  a.head_rows = Take(head_room);
  a.head_slots = Take(head_room);
  a.targets = Take(head.targets.size());
  std::copy(head.rows.begin(), head.rows.end(), a.head_rows.begin());
  std::copy(head.slots.begin(), head.slots.end(), a.head_slots.begin());
  std::copy(head.targets.begin(), head.targets.end(), a.targets.begin());
  return a;
}

void StepBatch::FillRun(const Run& run, size_t run_idx, size_t first_row, const Slots& slots,
                        const Arrays& a) const {
  const Sequence& sequence = slots.sequence(run.slot);
  if (!IsDecode(run, sequence)) {
    std::copy_n(sequence.known_tokens.begin() + run.first, run.num_tokens, &a.token_ids[first_row]);
  }
  std::iota(&a.positions[first_row], &a.positions[first_row] + run.num_tokens, run.first);
  MapSlots(run, sequence.full_blocks, &a.full_mapping[first_row]);
  if (slots.limits().sliding_window > 0) {
    MapSlots(run, sequence.sliding_blocks, &a.sliding_mapping[first_row]);
  }
  a.cu_seqlens_q[run_idx + 1] = static_cast<int32_t>(first_row) + run.num_tokens;
  a.context_lens[run_idx] = run.end();
  a.slots[run_idx] = run.slot;
}

// Adds inert sequences up to what the backend asks for; how many sequences there are then.
size_t StepBatch::PadDecodes(size_t num_decodes, const Arrays& a) const {
  const auto num_seqs = static_cast<size_t>(backend_->PadDecodes(static_cast<int>(num_decodes)));
  CHECK(num_seqs >= num_decodes && num_seqs <= num_slots_);
  for (size_t i = num_decodes; i < num_seqs; ++i) {
    a.cu_seqlens_q[i + 1] = a.cu_seqlens_q[i];
    a.context_lens[i] = a.positions[i] = a.head_rows[i] = 0;
    a.slots[i] = a.full_mapping[i] = a.sliding_mapping[i] = a.head_slots[i] = -1;
  }
  return num_seqs;
}

StepInputs StepBatch::Build(std::span<const Run> runs, const Slots& slots, const HeadRows& head) {
  size_t num_tokens = 0;
  size_t num_decodes = 0;
  for (const Run& run : runs) {
    num_tokens += static_cast<size_t>(run.num_tokens);
    if (IsDecode(run, slots.sequence(run.slot))) ++num_decodes;
  }
  const bool only_decodes = num_decodes == runs.size();
  const Arrays a = TakeArrays(only_decodes ? num_slots_ : num_tokens, head,
                              only_decodes ? num_slots_ : head.rows.size());
  size_t row = 0;
  a.cu_seqlens_q[0] = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    FillRun(runs[i], i, row, slots, a);
    row += static_cast<size_t>(runs[i].num_tokens);
  }
  size_t num_seqs = runs.size();
  size_t num_draws = head.rows.size() - head.targets.size();
  if (only_decodes) num_tokens = num_decodes = num_draws = num_seqs = PadDecodes(num_decodes, a);
  backend_->Upload(host_.data(), num_taken_ * sizeof(int32_t), device_->data());

  PoolBatch full{.num_tokens = static_cast<int>(num_tokens),
                 .num_seqs = static_cast<int>(num_seqs),
                 .positions = OnDevice(a.positions),
                 .cu_seqlens_q = OnDevice(a.cu_seqlens_q),
                 .context_lens = OnDevice(a.context_lens),
                 .slots = OnDevice(a.slots),
                 .slot_mapping = OnDevice(a.full_mapping),
                 .block_tables = Table(/*sliding=*/false, 0),
                 .max_blocks_per_seq = static_cast<int>(table_width_),
                 .host_cu_seqlens_q = a.cu_seqlens_q.data(),
                 .host_context_lens = a.context_lens.data()};
  PoolBatch sliding = full;
  sliding.slot_mapping = OnDevice(a.sliding_mapping);
  sliding.block_tables = Table(/*sliding=*/true, 0);
  return {.num_tokens = static_cast<int>(num_tokens),
          .num_decodes = static_cast<int>(num_decodes),
          .only_decodes = only_decodes,
          .token_ids = OnDevice(a.token_ids),
          .full = full,
          .sliding = sliding,
          .num_draws = static_cast<int>(num_draws),
          .num_reports = static_cast<int>(head.targets.size()),
          .head_rows = OnDevice(a.head_rows),
          .head_slots = OnDevice(a.head_slots),
          .targets = OnDevice(a.targets)};
}

std::span<int32_t> StepBatch::Take(size_t num_values) {
  CHECK(num_taken_ + num_values <= host_.size());
  const std::span<int32_t> taken(host_.data() + num_taken_, num_values);
  num_taken_ += num_values;
  return taken;
}

int32_t* StepBatch::OnDevice(std::span<const int32_t> taken) const {
  return static_cast<int32_t*>(device_->data()) + (taken.data() - host_.data());
}

int32_t* StepBatch::Table(bool sliding, int slot) const {
  const size_t row = (sliding ? num_slots_ : 0) + static_cast<size_t>(slot);
  return static_cast<int32_t*>(tables_->data()) + row * table_width_;
}

}  // namespace weightless::worker
