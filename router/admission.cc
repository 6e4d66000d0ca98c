#include "router/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "router/kv_pools.h"

namespace weightless::router {

absl::Status Admission::CheckLocked(int num_sequences) const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (num_ready_ == 0) return absl::UnavailableError("no worker is ready");
  if (num_queued_ + num_sequences > max_queued_) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue holds ", num_queued_, " of ",
                                                     max_queued_, " sequences; no room for ",
                                                     num_sequences, " more"));
  }
  return absl::OkStatus();
}

absl::Status Admission::Check(int num_sequences) const {
  absl::MutexLock lock(&mutex_);
  return CheckLocked(num_sequences);
}

absl::Status Admission::Enter(int num_sequences) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckLocked(num_sequences));
  num_queued_ += num_sequences;
  return absl::OkStatus();
}

void Admission::Leave(int num_sequences) {
  absl::MutexLock lock(&mutex_);
  num_queued_ -= num_sequences;
  CHECK(num_queued_ >= 0);
}

absl::Status Admission::CheckFits(const SequenceRequest& sequence) const {
  if (sequence.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (sequence.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens ", sequence.max_tokens, " is below 1"));
  }
  absl::MutexLock lock(&mutex_);
  const int64_t max_len = static_cast<int64_t>(sequence.prompt.size()) + sequence.max_tokens;
  int64_t max_context = 0, max_block_tokens = 0;
  for (const auto& [replica_idx, geometry] : geometries_) {
    max_context = std::max<int64_t>(max_context, geometry.max_context());
    max_block_tokens = std::max(max_block_tokens, KvPools::Capacity(geometry));
    if (max_len <= geometry.max_context() && max_len - 1 <= KvPools::Capacity(geometry)) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a prompt of ", sequence.prompt.size(), " tokens and ", sequence.max_tokens,
                   " output tokens make ", max_len, ", more than any worker holds (context ",
                   max_context, ", KV blocks for ", max_block_tokens + 1, ")"));
}

void Admission::SetNumReady(int num_ready) {
  absl::MutexLock lock(&mutex_);
  num_ready_ = num_ready;
}

void Admission::SetDraining() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
}

void Admission::SetGeometry(int replica_idx, const proto::Geometry& geometry) {
  absl::MutexLock lock(&mutex_);
  geometries_[replica_idx] = geometry;
}

int Admission::num_queued() const {
  absl::MutexLock lock(&mutex_);
  return num_queued_;
}

}  // namespace weightless::router
