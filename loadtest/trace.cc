#include "loadtest/trace.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/json.h"
#include "loadtest/text_file.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

constexpr double kMaxTokens = 4e6;

absl::StatusOr<double> NumberIn(const json::object& object, const char* key, double low,
                                double high) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) {
    return absl::InvalidArgumentError(Concat(key, " is not a number"));
  }
  const double number = value->to_number<double>();
  if (number >= low && number <= high) return number;
  return absl::InvalidArgumentError(
      Concat(key, " ", number, " is not between ", low, " and ", high));
}

absl::StatusOr<TraceEntry> ParseEntry(std::string_view line, double speed) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
  const json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("not a JSON object");
  TraceEntry entry;
  ASSIGN_OR_RETURN(const double timestamp, NumberIn(*object, "timestamp", -1e15, 1e15));
  ASSIGN_OR_RETURN(const double input, NumberIn(*object, "input_length", 1, kMaxTokens));
  ASSIGN_OR_RETURN(const double output, NumberIn(*object, "output_length", 1, kMaxTokens));
  entry.offset_seconds = timestamp / 1000 / speed;
  entry.input_tokens = static_cast<size_t>(input);
  entry.output_tokens = static_cast<size_t>(output);
  const json::value* ids = object->if_contains("hash_ids");
  if (ids == nullptr || !ids->is_array()) return entry;
  for (const json::value& id : ids->get_array()) {
    if (!id.is_int64())
      return absl::InvalidArgumentError("hash_ids holds something not an integer");
    entry.hash_ids.push_back(id.get_int64());
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<TraceEntry>> ParseTrace(std::string_view text, double speed) {
  std::vector<TraceEntry> entries;
  RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line) {
    ASSIGN_OR_RETURN(TraceEntry entry, ParseEntry(line, speed));
    entries.push_back(std::move(entry));
    return absl::OkStatus();
  }));
  if (entries.empty()) return absl::InvalidArgumentError("the trace has no requests");
  std::stable_sort(entries.begin(), entries.end(), [](const TraceEntry& a, const TraceEntry& b) {
    return a.offset_seconds < b.offset_seconds;
  });
  const double first = entries.front().offset_seconds;
  for (TraceEntry& entry : entries) entry.offset_seconds -= first;
  return entries;
}

absl::StatusOr<std::vector<TraceEntry>> LoadTrace(const std::string& path, double speed) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  auto entries = ParseTrace(text, speed);
  if (entries.ok()) return entries;
  return absl::InvalidArgumentError(Concat(path, ": ", std::string(entries.status().message())));
}

}  // namespace weightless::loadtest
