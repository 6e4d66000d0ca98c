#include "loadtest/http_response_parser.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless::loadtest {
namespace {

absl::Status BadResponse(std::string_view why, std::string_view what) {
  return absl::InvalidArgumentError(Concat("not an HTTP response: ", why, " ", Quoted(what)));
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase({a.data(), a.size()}, {b.data(), b.size()});
}

// `word` in lower case.
bool ContainsIgnoringCase(std::string_view text, std::string_view word) {
  return absl::StrContains(absl::AsciiStrToLower({text.data(), text.size()}),
                           {word.data(), word.size()});
}

std::string_view Strip(std::string_view text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace({text.data(), text.size()});
  return {stripped.data(), stripped.size()};
}

bool ParseNumber(std::string_view text, int base, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

absl::Status HttpResponseParser::Feed(std::string_view bytes, OnBody on_body) {
  absl::Status status;
  while (!bytes.empty()) {
    switch (state_) {
      case State::kFixed:
      case State::kChunkData: {
        const std::string_view body = bytes.substr(0, std::min<uint64_t>(remaining_, bytes.size()));
        bytes.remove_prefix(body.size());
        remaining_ -= body.size();
        on_body(body);
        if (remaining_ == 0) state_ = state_ == State::kFixed ? State::kDone : State::kChunkEnd;
        break;
      }
      case State::kToClose:
        on_body(bytes);
        return absl::OkStatus();
      case State::kDone:
        has_excess_ = true;
        return absl::OkStatus();
      default:
        if (!TakeLine(bytes, status)) return status;
        RETURN_IF_ERROR(OnLine());
        line_.clear();
    }
  }
  return absl::OkStatus();
}

absl::Status HttpResponseParser::FeedEnd() {
  if (state_ == State::kDone) return absl::OkStatus();
  if (state_ == State::kToClose) {
    state_ = State::kDone;
    keeps_alive_ = false;
    return absl::OkStatus();
  }
  return absl::UnavailableError(has_head() ? "the connection closed in the middle of the response"
                                           : "the connection closed before a response");
}

// Moves bytes up to a line feed into line_; false when there is none yet.
bool HttpResponseParser::TakeLine(std::string_view& bytes, absl::Status& status) {
  const size_t feed = bytes.find('\n');
  const size_t taken = feed == std::string_view::npos ? bytes.size() : feed + 1;
  line_.append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  if (state_ == State::kHead) head_bytes_ += taken;
  if (line_.size() > kMaxLineBytes || head_bytes_ > kMaxHeadBytes) {
    status = absl::InvalidArgumentError(Concat("response head: a line of ", line_.size(),
                                               " bytes or a head of ", head_bytes_, " exceeds ",
                                               kMaxLineBytes, " or ", kMaxHeadBytes));
    return false;
  }
  if (feed == std::string_view::npos) return false;
  line_.pop_back();
  if (line_.ends_with('\r')) line_.pop_back();
  return true;
}

absl::Status HttpResponseParser::OnLine() {
  switch (state_) {
    case State::kChunkSize:
      return ChunkSize(line_);
    case State::kChunkEnd:
      if (!line_.empty()) return BadResponse("a chunk is followed by", line_);
      state_ = State::kChunkSize;
      return absl::OkStatus();
    case State::kTrailer:
      if (line_.empty()) state_ = State::kDone;
      return absl::OkStatus();
    default:
      if (!has_status_line_) return StatusLine(line_);
      return line_.empty() ? EndOfHead() : Field(line_);
  }
}

absl::Status HttpResponseParser::StatusLine(std::string_view line) {
  uint64_t code = 0;
  if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
      !ParseNumber(line.substr(9, 3), 10, code) || code < 100 || code == 101) {
    return BadResponse("status line", line);
  }
  head_.status = static_cast<int>(code);
  keeps_alive_ = line[7] != '0';
  has_status_line_ = true;
  return absl::OkStatus();
}

absl::Status HttpResponseParser::Field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return BadResponse("header", line);
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Strip(line.substr(colon + 1));
  if (EqualsIgnoringCase(name, "content-length")) {
    has_length_ = ParseNumber(value, 10, remaining_);
    if (!has_length_) return BadResponse("Content-Length", value);
  } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
    if (!EqualsIgnoringCase(value, "chunked")) return BadResponse("Transfer-Encoding", value);
    is_chunked_ = true;
  } else if (EqualsIgnoringCase(name, "connection")) {
    if (ContainsIgnoringCase(value, "close")) keeps_alive_ = false;
  } else if (EqualsIgnoringCase(name, "content-type")) {
    head_.content_type = value;
  } else if (EqualsIgnoringCase(name, "location")) {
    head_.location = value;
  }
  return absl::OkStatus();
}

absl::Status HttpResponseParser::EndOfHead() {
  if (head_.status < 200) {  // interim: the response itself follows
    has_status_line_ = false;
    return absl::OkStatus();
  }
  if (head_.status == 204 || head_.status == 304) {
    state_ = State::kDone;
  } else if (is_chunked_) {
    state_ = State::kChunkSize;
  } else if (!has_length_) {
    state_ = State::kToClose;
  } else {
    state_ = remaining_ == 0 ? State::kDone : State::kFixed;
  }
  return absl::OkStatus();
}

absl::Status HttpResponseParser::ChunkSize(std::string_view line) {
  const std::string_view digits = Strip(line.substr(0, line.find(';')));
  if (!ParseNumber(digits, 16, remaining_)) return BadResponse("chunk size", line);
  state_ = remaining_ == 0 ? State::kTrailer : State::kChunkData;
  return absl::OkStatus();
}

}  // namespace weightless::loadtest
