// A recorded load: when requests came and how long they were.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::loadtest {

struct TraceEntry {
  double offset_seconds = 0;  // after the first entry
  size_t input_tokens = 0;
  size_t output_tokens = 0;
  // One id for each block of kTraceBlockTokens tokens of the prompt, from its beginning: equal ids
  // stand for equal text. Empty: all text is its own.
  std::vector<int64_t> hash_ids;
};

constexpr size_t kTraceBlockTokens = 512;

// JSONL, one object a line, as the Mooncake traces are: timestamp in milliseconds, input_length,
// output_length and optionally hash_ids. Sorted by time; the offsets are divided by `speed`.
// kInvalidArgument names the line.
absl::StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text, double speed);
absl::StatusOr<std::vector<TraceEntry>> LoadTrace(const std::string& path, double speed);

}  // namespace weightless::loadtest
