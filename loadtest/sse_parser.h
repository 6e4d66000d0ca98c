// Server-sent events, read as their bytes arrive.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace weightless::loadtest {

// Hands on the data of each event (WHATWG HTML, section 9.2.6); several data lines are joined by a
// line feed. Comments and the other fields are skipped. An event that lies in one Feed with one
// data line, the common case, is handed on without a copy.
class SseParser {
 public:
  using OnData = absl::FunctionRef<void(std::string_view)>;

  // `bytes` may end anywhere. kInvalidArgument: an event larger than kMaxEventBytes.
  absl::Status Feed(std::string_view bytes, OnData on_data);

  // The end of the stream. An event that lacks its blank line is handed on all the same.
  void FeedEnd(OnData on_data);

  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

 private:
  void OnLine(std::string_view line, OnData on_data);

  std::string line_;         // the beginning of a line whose end has not come
  std::string_view single_;  // the event's only data line so far, within the bytes being fed
  std::string data_;         // the event's data when it is not in single_
  bool has_data_ = false;
  bool after_cr_ = false;
};

}  // namespace weightless::loadtest
