// Sampling as it comes over the wire, checked and in the kernels' form.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/sample.h"
#include "proto/worker.pb.h"

namespace weightless::worker {

inline constexpr int kMaxLogitBias = 1024;
inline constexpr int kMaxStopTokenIds = 1024;

// kInvalidArgument naming field, value and limit when a value is outside the ranges of
// proto/worker.proto or a token id is not below `vocab_size`.
absl::StatusOr<kernels::SamplingParams> ParseSampling(const proto::Sampling& sampling,
                                                      int vocab_size);

}  // namespace weightless::worker
