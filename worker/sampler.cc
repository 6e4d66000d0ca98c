#include "worker/sampler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless::worker {
namespace {

void FillLogprobs(const kernels::SampledToken& sampled, proto::Logprobs& out) {
  out.set_token(sampled.token);
  out.set_logprob(sampled.logprob);
  out.set_rank(static_cast<uint32_t>(sampled.rank));
  for (int i = 0; i < sampled.num_top; ++i) {
    out.add_top_tokens(sampled.top_tokens[i]);
    out.add_top_logprobs(sampled.top_logprobs[i]);
  }
}

}  // namespace

absl::StatusOr<Sampler::Memory> Sampler::Memory::Create(const PlanLimits& limits,
                                                        kernels::Backend& backend) {
  Memory memory;
  memory.states = backend.MakeSlotStates(limits.num_slots, limits.max_context, limits.vocab_size);
  memory.sampled =
      backend.Allocate(static_cast<size_t>(limits.max_step_tokens) * sizeof(kernels::SampledToken));
  if (memory.states == nullptr || memory.sampled == nullptr) {
    return absl::ResourceExhaustedError(
        Concat("no device memory for the sampling of ", limits.num_slots, " slots"));
  }
  return memory;
}

Sampler::Sampler(Memory memory, Model& model, Slots& slots, kernels::Backend& backend)
    : memory_(std::move(memory)), model_(model), slots_(slots), backend_(backend) {}

void Sampler::AdmitSequences() {
  for (const int slot : slots_.admitted()) {
    const Sequence& sequence = slots_.sequence(slot);
    memory_.states->Admit(slot, sequence.sampling, sequence.known_tokens,
                          sequence.num_prompt_tokens);
  }
}

HeadRows Sampler::SelectRows(std::span<const Run> runs, LaunchedStep& step) {
  rows_.clear();
  row_slots_.clear();
  targets_.clear();
  const auto want = [&](const Run& run, int first_row, int position, bool draw) {
    const Sequence& sequence = slots_.sequence(run.slot);
    rows_.push_back(first_row + position - run.first);
    row_slots_.push_back(run.slot);
    step.head.push_back({.slot = run.slot,
                         .sequence_id = sequence.id,
                         .position = position,
                         .draw = draw,
                         .fills_context = position + 2 >= slots_.limits().max_context});
  };
  int first_row = 0;
  for (const Run& run : runs) {
    if (run.end() == slots_.sequence(run.slot).num_tokens) {
      want(run, first_row, run.end() - 1, /*draw=*/true);
    }
    first_row += run.num_tokens;
  }
  first_row = 0;
  for (const Run& run : runs) {
    const Sequence& sequence = slots_.sequence(run.slot);
    if (sequence.sampling.num_prompt_logprobs >= 0) {
      const int end = std::min(run.end(), sequence.num_prompt_tokens - 1);
      for (int position = run.first; position < end; ++position) {
        want(run, first_row, position, /*draw=*/false);
        targets_.push_back(sequence.known_tokens[static_cast<size_t>(position) + 1]);
      }
    }
    first_row += run.num_tokens;
  }
  return {.rows = rows_, .slots = row_slots_, .targets = targets_};
}

void Sampler::FeedTokens(const StepInputs& in) {
  backend_.FeedTokens(*memory_.states, in.full.slots, in.num_decodes, in.token_ids);
}

absl::Status Sampler::Sample(const StepInputs& in, const LaunchedStep& step) {
  auto* sampled = static_cast<kernels::SampledToken*>(memory_.sampled->data());
  const int num_rows = in.num_draws + in.num_reports;
  for (int first = 0; first < num_rows;) {
    const bool draw = first < in.num_draws;
    const int count = std::min(kLogitRows, (draw ? in.num_draws : num_rows) - first);
    const kernels::TensorView logits = model_.Logits(in.head_rows + first, count);
    if (observer_) RETURN_IF_ERROR(Observe(step, first, logits));
    if (draw) {
      backend_.Sample(logits, in.head_slots + first, *memory_.states, sampled + first);
    } else {
      backend_.Score(logits, in.head_slots + first, in.targets + first - in.num_draws,
                     *memory_.states, sampled + first);
    }
    first += count;
  }
  return absl::OkStatus();
}

void Sampler::DownloadSampled(LaunchedStep& step) {
  step.sampled.resize(step.head.size());
  backend_.DownloadLater(memory_.sampled->data(),
                         step.sampled.size() * sizeof(kernels::SampledToken), step.sampled.data());
}

absl::Status Sampler::Observe(const LaunchedStep& step, int first,
                              const kernels::TensorView& logits) {
  const auto vocab_size = static_cast<size_t>(logits.cols);
  std::vector<float> host(static_cast<size_t>(logits.rows) * vocab_size);
  backend_.Download(logits.data, host.size() * sizeof(float), host.data());
  size_t row = 0;
  for (auto i = static_cast<size_t>(first); i < step.head.size() && row < host.size(); ++i) {
    const std::span<const float> row_logits = std::span(host).subspan(row, vocab_size);
    RETURN_IF_ERROR(observer_(step.head[i].slot, step.head[i].position, row_logits));
    row += vocab_size;
  }
  return absl::OkStatus();
}

proto::StepResult Sampler::Report(const LaunchedStep& step, std::span<LaunchedStep> later) {
  proto::StepResult result;
  std::map<int, proto::SlotResult*> by_slot;
  for (size_t i = 0; i < step.head.size(); ++i) {
    const HeadRow& row = step.head[i];
    const kernels::SampledToken& sampled = step.sampled[i];
    if (row.dropped) continue;
    proto::SlotResult*& slot_result = by_slot[row.slot];
    if (slot_result == nullptr) slot_result = result.add_slots();
    slot_result->set_slot(static_cast<uint32_t>(row.slot));
    if (!row.draw) {
      FillLogprobs(sampled, *slot_result->add_prompt_logprobs());
      continue;
    }
    CHECK(sampled.token >= 0);
    slot_result->set_token(sampled.token);
    slot_result->set_ended(sampled.is_stop != 0 || row.fills_context);
    if (sampled.num_top >= 0) FillLogprobs(sampled, *slot_result->mutable_logprobs());
    if (sampled.is_stop != 0) End(row, later);
  }
  return result;
}

void Sampler::End(const HeadRow& row, std::span<LaunchedStep> later) {
  slots_.End(row.slot, row.sequence_id);
  for (LaunchedStep& step : later) {
    for (HeadRow& other : step.head) {
      if (other.sequence_id == row.sequence_id) other.dropped = true;
    }
  }
}

}  // namespace weightless::worker
