#include "loadtest/sse_parser.h"

#include <utility>

#include "common/concat.h"

namespace weightless::loadtest {

absl::Status SseParser::Feed(std::string_view bytes, OnData on_data) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_.append(bytes);
      break;
    }
    const std::string_view line = bytes.substr(0, end);
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      OnLine(line, on_data);
    } else {
      // What the line points to goes, so single_ must not stay in it.
      std::string whole = std::exchange(line_, {});
      whole.append(line);
      OnLine(whole, on_data);
      data_.append(std::exchange(single_, {}));
    }
  }
  data_.append(std::exchange(single_, {}));
  const size_t held = line_.size() + data_.size();
  if (held <= kMaxEventBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("an event of ", held, " bytes or more exceeds ", kMaxEventBytes));
}

void SseParser::FeedEnd(OnData on_data) {
  const std::string last = std::exchange(line_, {});  // single_ may point into it
  if (!last.empty()) OnLine(last, on_data);
  OnLine("", on_data);
}

void SseParser::OnLine(std::string_view line, OnData on_data) {
  if (line.empty()) {
    const std::string_view data = data_.empty() ? single_ : std::string_view(data_);
    if (std::exchange(has_data_, false) && !data.empty()) on_data(data);
    single_ = {};
    data_.clear();
    return;
  }
  if (!line.starts_with("data")) return;
  line.remove_prefix(4);
  if (!line.empty()) {
    if (line.front() != ':') return;  // another field
    line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  if (!std::exchange(has_data_, true)) {
    single_ = line;
    return;
  }
  data_.append(std::exchange(single_, {}));
  data_ += '\n';
  data_.append(line);
}

}  // namespace weightless::loadtest
