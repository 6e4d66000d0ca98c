#include "worker/sampling_params.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::worker {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

// Refuses NaN too.
absl::Status CheckRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("sampling.", field, " ", value, " is outside ", low, " .. ", high));
}

absl::Status CheckAtMost(std::string_view field, int64_t value, int64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("sampling.", field, " ", value, " exceeds ", limit));
}

absl::Status CheckToken(std::string_view field, int32_t token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("sampling.", field, " ", token, " is outside 0 .. ", vocab_size - 1));
}

// A factor for which zero, the wire's default, means "none".
float OneIfZero(float value) { return value == 0 ? 1 : value; }

absl::Status CheckRanges(const proto::Sampling& s) {
  RETURN_IF_ERROR(CheckRange("temperature", s.temperature(), 0, 2));
  RETURN_IF_ERROR(CheckRange("top_p", s.top_p(), 0, 1));
  RETURN_IF_ERROR(CheckRange("min_p", s.min_p(), 0, 1));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", s.repetition_penalty(), 0, 2));
  RETURN_IF_ERROR(CheckRange("presence_penalty", s.presence_penalty(), -2, 2));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", s.frequency_penalty(), -2, 2));
  RETURN_IF_ERROR(CheckAtMost("logit_bias entries", s.logit_bias_size(), kMaxLogitBias));
  RETURN_IF_ERROR(CheckAtMost("stop_token_ids entries", s.stop_token_ids_size(), kMaxStopTokenIds));
  RETURN_IF_ERROR(CheckAtMost("logprobs", s.logprobs(), kernels::kMaxLogprobs));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<kernels::SamplingParams> ParseSampling(const proto::Sampling& sampling,
                                                      int vocab_size) {
  RETURN_IF_ERROR(CheckRanges(sampling));
  kernels::SamplingParams params;
  params.temperature = sampling.temperature();
  params.top_k =
      static_cast<int>(std::min<uint32_t>(sampling.top_k(), static_cast<uint32_t>(vocab_size)));
  params.top_p = OneIfZero(sampling.top_p());
  params.min_p = sampling.min_p();
  params.repetition_penalty = OneIfZero(sampling.repetition_penalty());
  params.presence_penalty = sampling.presence_penalty();
  params.frequency_penalty = sampling.frequency_penalty();
  params.seed = sampling.seed();
  if (sampling.has_logprobs()) params.num_logprobs = static_cast<int>(sampling.logprobs());
  params.min_tokens = static_cast<int>(std::min<uint32_t>(sampling.min_tokens(), kMaxInt));
  for (const proto::LogitBias& entry : sampling.logit_bias()) {
    RETURN_IF_ERROR(CheckToken("logit_bias.token", entry.token(), vocab_size));
    RETURN_IF_ERROR(CheckRange("logit_bias.bias", entry.bias(), -100, 100));
    params.logit_bias.emplace_back(entry.token(), entry.bias());
  }
  for (const int32_t token : sampling.stop_token_ids()) {
    RETURN_IF_ERROR(CheckToken("stop_token_ids", token, vocab_size));
    params.stop_token_ids.push_back(token);
  }
  return params;
}

}  // namespace weightless::worker
