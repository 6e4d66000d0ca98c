#include "loadtest/server_metrics.h"

#include <array>
#include <cstdlib>
#include <limits>

#include "common/concat.h"
#include "common/status.h"
#include "loadtest/text_file.h"

namespace weightless::loadtest {
namespace {

// Where each server keeps what we compare. Requests are summed over the label `outcome_label`
// without the outcomes that are no answer.
struct Names {
  const char* family;
  const char* requests;
  const char* outcome_label;
  const char* prompt_tokens;
  const char* output_tokens;
  const char* ttft;
  bool has_cached_prompt_tokens;
};

constexpr std::array kFamilies = {
    Names{"weightless", "weightless_requests_total", "outcome", "weightless_prompt_tokens_total",
          "weightless_generated_tokens_total", "weightless_ttft_seconds_bucket", true},
    Names{"vllm", "vllm:request_success_total", "finished_reason", "vllm:prompt_tokens_total",
          "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_bucket", true},
    Names{"llamacpp", "", "", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "",
          false},
};

bool IsAnswer(const MetricSample& sample, const char* outcome_label) {
  const auto label = sample.labels.find(outcome_label);
  if (label == sample.labels.end()) return true;
  return label->second != "error" && label->second != "aborted" && label->second != "abort";
}

void Add(std::optional<double>& sum, double value) { sum = sum.value_or(0) + value; }

// Consumes name="value" pairs up to the closing brace.
bool TakeLabels(std::string_view& text, std::map<std::string, std::string>& labels) {
  while (!text.empty() && text.front() != '}') {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return false;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 2);
    std::string value;
    for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
      if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
      value += text.front();
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    labels[name] = std::move(value);
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  if (text.empty()) return false;
  text.remove_prefix(1);
  return true;
}

bool ParseValue(std::string_view text, double& value) {
  const std::string copy(text);  // strtod wants an end; it knows +Inf and NaN too
  char* end = nullptr;
  value = std::strtod(copy.c_str(), &end);
  return end != copy.c_str() && (*end == '\0' || *end == ' ' || *end == '\r');
}

absl::Status ParseSample(std::string_view line, std::vector<MetricSample>& samples) {
  absl::Status bad = absl::InvalidArgumentError(Concat("not a sample: ", Quoted(line)));
  MetricSample sample;
  const size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos || name_end == 0) return bad;
  sample.name = line.substr(0, name_end);
  line.remove_prefix(name_end);
  if (line.front() == '{') {
    line.remove_prefix(1);
    if (!TakeLabels(line, sample.labels)) return bad;
  }
  while (line.starts_with(' ')) line.remove_prefix(1);
  if (!ParseValue(line, sample.value)) return bad;
  samples.push_back(std::move(sample));
  return absl::OkStatus();
}

std::optional<double> Minus(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a) return std::nullopt;
  return *a - b.value_or(0);
}

}  // namespace

absl::StatusOr<std::vector<MetricSample>> ParseExposition(std::string_view text) {
  std::vector<MetricSample> samples;
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line) -> absl::Status {
    if (line.starts_with('#')) return absl::OkStatus();
    return ParseSample(line, samples);
  }));
  return samples;
}

ServerCounts CountsOf(const std::vector<MetricSample>& samples) {
  ServerCounts counts;
  for (const Names& names : kFamilies) {
    for (const MetricSample& sample : samples) {
      if (sample.name == names.requests && IsAnswer(sample, names.outcome_label)) {
        Add(counts.requests, sample.value);
      } else if (sample.name == names.prompt_tokens) {
        Add(counts.prompt_tokens, sample.value);
      } else if (sample.name == names.output_tokens) {
        Add(counts.output_tokens, sample.value);
      } else if (sample.name == names.ttft) {
        const auto bound = sample.labels.find("le");
        double seconds = std::numeric_limits<double>::infinity();
        if (bound == sample.labels.end() || !ParseValue(bound->second, seconds)) continue;
        counts.ttft_buckets[seconds] += sample.value;
      }
    }
    if (!counts.requests && !counts.output_tokens) continue;
    counts.family = names.family;
    counts.has_cached_prompt_tokens = names.has_cached_prompt_tokens;
    return counts;
  }
  return counts;
}

ServerCounts Difference(const ServerCounts& later, const ServerCounts& earlier) {
  ServerCounts out = later;
  out.requests = Minus(later.requests, earlier.requests);
  out.prompt_tokens = Minus(later.prompt_tokens, earlier.prompt_tokens);
  out.output_tokens = Minus(later.output_tokens, earlier.output_tokens);
  for (auto& [bound, count] : out.ttft_buckets) {
    const auto before = earlier.ttft_buckets.find(bound);
    if (before != earlier.ttft_buckets.end()) count -= before->second;
  }
  return out;
}

}  // namespace weightless::loadtest
