#include "worker/sampler.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace weightless::worker {
namespace {

void FillLogprobs(const kernels::SampledToken& sampled, proto::Logprobs& out) {
  out.set_token(sampled.token);
  out.set_logprob(sampled.logprob);
  out.set_rank(static_cast<uint32_t>(sampled.rank));
  for (const auto& [token, logprob] : sampled.top) {
    out.add_top_tokens(token);
    out.add_top_logprobs(logprob);
  }
}

}  // namespace

Sampler::Sampler(Model& model, Slots& slots, kernels::Backend& backend)
    : model_(model), slots_(slots), backend_(backend), sampled_(kLogitRows) {
  sample_rows_.reserve(kLogitRows);
}

std::span<const int32_t> Sampler::SelectRows(std::span<const Run> runs) {
  wants_.clear();
  rows_.clear();
  int first_row = 0;
  const auto want = [&](const Run& run, int position, bool draw) {
    wants_.push_back({.slot = run.slot, .position = position, .draw = draw});
    rows_.push_back(first_row + position - run.first);
  };
  for (const Run& run : runs) {
    const Sequence& sequence = slots_.sequence(run.slot);
    if (sequence.num_prompt_logprobs >= 0) {
      const int end = std::min(run.end(), sequence.num_prompt_tokens - 1);
      for (int position = run.first; position < end; ++position) want(run, position, false);
    }
    if (run.end() == static_cast<int>(sequence.tokens.size())) want(run, run.end() - 1, true);
    first_row += run.num_tokens;
  }
  return rows_;
}

absl::Status Sampler::Sample(const int32_t* rows, proto::StepResult& result) {
  for (size_t first = 0; first < wants_.size(); first += kLogitRows) {
    const size_t count = std::min<size_t>(kLogitRows, wants_.size() - first);
    const std::span<const Want> group(&wants_[first], count);
    const kernels::TensorView logits = model_.Logits(rows + first, static_cast<int>(count));
    if (observer_) RETURN_IF_ERROR(Observe(group, logits));
    sample_rows_.clear();
    for (const Want& want : group) sample_rows_.push_back(RowFor(want));
    backend_.Sample(logits, sample_rows_, std::span(sampled_).first(count));
    Report(group, result);
  }
  return absl::OkStatus();
}

kernels::SampleRow Sampler::RowFor(const Want& want) const {
  const Sequence& sequence = slots_.sequence(want.slot);
  kernels::SampleRow row{.params = &sequence.sampling,
                         .tokens = sequence.tokens,
                         .num_prompt_tokens = sequence.num_prompt_tokens,
                         .draw = want.draw,
                         .num_logprobs = sequence.num_logprobs};
  if (!want.draw) {
    row.target_token = sequence.tokens[static_cast<size_t>(want.position) + 1];
    row.num_logprobs = sequence.num_prompt_logprobs;
  }
  return row;
}

absl::Status Sampler::Observe(std::span<const Want> group, const kernels::TensorView& logits) {
  const auto vocab_size = static_cast<size_t>(logits.cols);
  std::vector<float> host(group.size() * vocab_size);
  backend_.Synchronize();
  backend_.Download(logits.data, host.size() * sizeof(float), host.data());
  for (size_t i = 0; i < group.size(); ++i) {
    RETURN_IF_ERROR(observer_(group[i].slot, group[i].position,
                              std::span(host).subspan(i * vocab_size, vocab_size)));
  }
  return absl::OkStatus();
}

void Sampler::Report(std::span<const Want> group, proto::StepResult& result) {
  for (size_t i = 0; i < group.size(); ++i) {
    const Want& want = group[i];
    const int last = result.slots_size() - 1;
    // The rows of one slot follow each other, also across groups.
    proto::SlotResult& slot_result =
        last >= 0 && result.slots(last).slot() == static_cast<uint32_t>(want.slot)
            ? *result.mutable_slots(last)
            : *result.add_slots();
    slot_result.set_slot(static_cast<uint32_t>(want.slot));
    if (!want.draw) {
      FillLogprobs(sampled_[i], *slot_result.add_prompt_logprobs());
      continue;
    }
    slots_.Append(want.slot, sampled_[i].token);
    const Sequence& sequence = slots_.sequence(want.slot);
    slot_result.set_token(sampled_[i].token);
    slot_result.set_ended(sequence.ended);
    if (sequence.num_logprobs >= 0) FillLogprobs(sampled_[i], *slot_result.mutable_logprobs());
  }
}

}  // namespace weightless::worker
