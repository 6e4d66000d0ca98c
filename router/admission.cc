#include "router/admission.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace weightless::router {

int Admission::NumQueued(const std::string& key_id) const {
  const auto found = num_queued_by_key_.find(key_id);
  return found != num_queued_by_key_.end() ? found->second : 0;
}

absl::Status Admission::CheckLocked(const std::string& key_id, int num_sequences) const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (num_ready_ == 0) return absl::UnavailableError("no worker is ready");
  if (num_queued_ + num_sequences > max_queued_) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue holds ", num_queued_, " of ",
                                                     max_queued_, " sequences; no room for ",
                                                     num_sequences, " more"));
  }
  const int num_own = NumQueued(key_id), num_free = max_queued_ - num_queued_ - num_sequences;
  if (!key_id.empty() && num_own > 0 && num_own + num_sequences > num_free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the key \"", absl::CHexEscape(key_id), "\" has ", num_own,
                     " sequences in the queue; with ", num_sequences,
                     " more it would leave fewer places, ", num_free, ", than it takes"));
  }
  return absl::OkStatus();
}

absl::Status Admission::Check(const std::string& key_id, int num_sequences) const {
  absl::MutexLock lock(&mutex_);
  return CheckLocked(key_id, num_sequences);
}

absl::Status Admission::Enter(const std::string& key_id, int num_sequences) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckLocked(key_id, num_sequences));
  num_queued_ += num_sequences;
  num_queued_by_key_[key_id] += num_sequences;
  return absl::OkStatus();
}

void Admission::Leave(const std::string& key_id, int num_sequences) {
  absl::MutexLock lock(&mutex_);
  num_queued_ -= num_sequences;
  const auto own = num_queued_by_key_.find(key_id);
  CHECK(own != num_queued_by_key_.end() && own->second >= num_sequences);
  own->second -= num_sequences;
  if (own->second == 0) num_queued_by_key_.erase(own);
}

absl::Status Admission::CheckFits(const SequenceRequest& sequence) const {
  if (sequence.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (sequence.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens ", sequence.max_tokens, " is below 1"));
  }
  const int64_t max_len = static_cast<int64_t>(sequence.prompt.size()) + sequence.max_tokens;
  const LengthLimit limit = length_limit();
  if (max_len <= limit.num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a prompt of ", sequence.prompt.size(), " tokens and ", sequence.max_tokens,
                   " output tokens make ", max_len, ", more than the ", limit.num_tokens,
                   " that any worker holds"));
}

LengthLimit Admission::length_limit() const {
  absl::MutexLock lock(&mutex_);
  return length_limit_;
}

void Admission::SetReady(int num_ready, int64_t ready_len) {
  absl::MutexLock lock(&mutex_);
  num_ready_ = num_ready;
  length_limit_.num_ready_tokens = ready_len;
}

void Admission::SetDraining() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
}

void Admission::SetLengthLimit(const LengthLimit& limit) {
  absl::MutexLock lock(&mutex_);
  if (limit.num_tokens == 0) return;
  length_limit_.num_tokens = limit.num_tokens;
  length_limit_.cause = limit.cause;
}

int Admission::num_queued() const {
  absl::MutexLock lock(&mutex_);
  return num_queued_;
}

}  // namespace weightless::router
