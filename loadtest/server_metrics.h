// What a server says about itself on /metrics.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::loadtest {

// One sample of the Prometheus text format.
struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// kInvalidArgument names the first line that is not of the format.
absl::StatusOr<std::vector<MetricSample>> ParseExposition(std::string_view text);

// Counters of a server since its start, under whichever names it has: ours, vLLM's, llama.cpp's.
struct ServerCounts {
  std::string family;              // "weightless", "vllm", "llamacpp"; empty: none known
  std::optional<double> requests;  // that ended with an answer
  std::optional<double> prompt_tokens;
  bool has_cached_prompt_tokens = true;  // in prompt_tokens; llama.cpp counts only what it computes
  std::optional<double> output_tokens;
  std::map<double, double> ttft_buckets;  // upper bound in seconds -> requests at or below
};

ServerCounts CountsOf(const std::vector<MetricSample>& samples);

// later - earlier, member by member.
ServerCounts Difference(const ServerCounts& later, const ServerCounts& earlier);

}  // namespace weightless::loadtest
