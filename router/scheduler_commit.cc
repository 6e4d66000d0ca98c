// The half of Scheduler that takes results. A worker is trusted to compute, not to keep the rules:
// every field of a result is checked against the plan.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "router/scheduler.h"

namespace weightless::router {

namespace {

constexpr int kMaxTopLogprobs = 20;

absl::Status CheckLogprobs(const proto::Logprobs& logprobs) {
  if (logprobs.top_tokens_size() != logprobs.top_logprobs_size() ||
      logprobs.top_tokens_size() > kMaxTopLogprobs) {
    return absl::InternalError(absl::StrCat("logprobs have ", logprobs.top_tokens_size(),
                                            " tokens and ", logprobs.top_logprobs_size(),
                                            " values; at most ", kMaxTopLogprobs, " of each"));
  }
  return absl::OkStatus();
}

bool IsStopToken(const Sequence& sequence, int32_t token) {
  const auto& stops = sequence.request.sampling.stop_token_ids();
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

}  // namespace

void StepOutcome::Clear() {
  emissions.clear();
  finished.clear();
  num_prompt_tokens = num_recomputed_tokens = batch_size = 0;
}

absl::Status Scheduler::Commit(const proto::StepResult& result, StepOutcome& outcome) {
  outcome.Clear();
  if (in_flight_.empty() || result.step() != in_flight_.front().step) {
    return absl::InternalError(
        absl::StrCat("result of step ", result.step(), ", expected ",
                     in_flight_.empty() ? "none" : absl::StrCat(in_flight_.front().step)));
  }
  std::vector<Run>& runs = in_flight_.front().runs;
  for (size_t i = 0; i < runs.size(); ++i) run_of_slot_[runs[i].slot] = static_cast<int>(i);
  absl::Status status;
  for (int i = 0; i < result.slots_size() && status.ok(); ++i) {
    status = CommitSlot(result.slots(i), runs, outcome);
  }
  for (const Run& run : runs) run_of_slot_[run.slot] = -1;
  if (status.ok()) status = CheckComplete(runs);
  Account(runs, outcome);
  Finish(outcome);
  runs.clear();
  spare_runs_.push_back(std::move(runs));
  in_flight_.pop_front();
  return status;
}

absl::Status Scheduler::CommitSlot(const proto::SlotResult& result, std::vector<Run>& runs,
                                   StepOutcome& outcome) {
  const int index = result.slot() < run_of_slot_.size() ? run_of_slot_[result.slot()] : -1;
  if (index < 0) {
    return absl::InternalError(absl::StrCat("slot ", result.slot(), " did not run in this step"));
  }
  Run& run = runs[static_cast<size_t>(index)];
  if (std::exchange(run.done, true)) {
    return absl::InternalError(absl::StrCat("slot ", result.slot(), " has two results"));
  }
  if (run.sequence == nullptr) return absl::OkStatus();
  Sequence& sequence = *run.sequence;
  if (result.prompt_logprobs_size() > 0) {
    RETURN_IF_ERROR(CommitPromptLogprobs(result, sequence));
  }
  if (result.has_token() != run.samples) {
    return absl::InternalError(absl::StrCat("slot ", result.slot(), " has ",
                                            result.has_token() ? "a" : "no", " token, expected ",
                                            run.samples ? "one" : "none"));
  }
  return run.samples ? CommitToken(result, sequence, outcome) : absl::OkStatus();
}

absl::Status Scheduler::CommitPromptLogprobs(const proto::SlotResult& result, Sequence& sequence) {
  Residence& on = sequence.on;
  const int num_wanted =
      sequence.request.prompt_logprobs.has_value() ? sequence.num_prompt_tokens - 1 : 0;
  for (const proto::Logprobs& logprobs : result.prompt_logprobs()) {
    if (on.num_prompt_logprobs >= num_wanted) {
      return absl::InternalError(
          absl::StrCat("slot ", result.slot(), " has more than ", num_wanted, " prompt logprobs"));
    }
    RETURN_IF_ERROR(CheckLogprobs(logprobs));
    // After a preemption those that are here already come again.
    if (++on.num_prompt_logprobs <= sequence.num_prompt_logprobs) continue;
    sequence.prompt_logprobs.push_back(logprobs);
    ++sequence.num_prompt_logprobs;
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CommitToken(const proto::SlotResult& result, Sequence& sequence,
                                    StepOutcome& outcome) {
  const int32_t token = result.token();
  if (token < 0 || token >= options_.vocab_size) {
    return absl::InternalError(absl::StrCat("slot ", result.slot(), " has token ", token,
                                            ", outside the vocabulary of ", options_.vocab_size));
  }
  if (result.has_logprobs() != sequence.request.sampling.has_logprobs()) {
    return absl::InternalError(absl::StrCat(
        "slot ", result.slot(), " has logprobs that were not asked for, or lacks them"));
  }
  if (result.has_logprobs()) RETURN_IF_ERROR(CheckLogprobs(result.logprobs()));
  if (sequence.wants_prompt_logprobs()) {
    return absl::InternalError(absl::StrCat("slot ", result.slot(), " has ",
                                            sequence.num_prompt_logprobs, " prompt logprobs of ",
                                            sequence.num_prompt_tokens - 1));
  }
  sequence.tokens.push_back(token);
  sequence.num_losses = 0;
  const size_t block_size = options_.geometry.block_size();
  if (sequence.tokens.size() % block_size == 0) {
    sequence.hashes.push_back(
        options_.hasher->Next(sequence.hashes.empty() ? sequence.root_hash : sequence.hashes.back(),
                              std::span(sequence.tokens).last(block_size)));
  }
  Emission emission{.sequence = &sequence, .token = token, .result = &result, .end = {}};
  if (result.ended() && IsStopToken(sequence, token)) {
    emission.end = EndReason::kStop;
  } else if (result.ended() || sequence.num_tokens() >= sequence.max_len()) {
    emission.end = EndReason::kLength;
  }
  outcome.emissions.push_back(emission);
  return absl::OkStatus();
}

absl::Status Scheduler::CheckComplete(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.samples && !run.done && run.sequence != nullptr) {
      return absl::InternalError(absl::StrCat("no result for slot ", run.slot));
    }
  }
  return absl::OkStatus();
}

void Scheduler::Account(const std::vector<Run>& runs, StepOutcome& outcome) {
  for (const Run& run : runs) {
    if (run.sequence == nullptr) continue;
    Sequence& sequence = *run.sequence;
    --sequence.on.num_in_flight;
    ++outcome.batch_size;
    const int begin = sequence.on.num_committed;
    const int end = sequence.on.num_committed += run.num_tokens;
    const int num_counted = sequence.num_counted_tokens;
    outcome.num_recomputed_tokens += std::max(0, std::min(end, num_counted) - begin);
    outcome.num_prompt_tokens +=
        std::max(0, std::min(end, sequence.num_prompt_tokens) - num_counted);
    sequence.num_counted_tokens = std::max(end, num_counted);
  }
}

void Scheduler::Finish(StepOutcome& outcome) {
  for (const Emission& emission : outcome.emissions) {
    if (!emission.end.has_value()) continue;
    Sequence& sequence = *emission.sequence;
    // Later plans may name it, but the worker skips it there: its last token is not computed.
    sequence.on.num_computed = std::min(sequence.on.num_computed, sequence.num_tokens() - 1);
    outcome.finished.push_back(Remove(sequence));
  }
}

}  // namespace weightless::router
