// One HTTP/1.1 response, read as its bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace weightless::loadtest {

// What of a response's head matters here; empty: the header is not there.
struct ResponseHead {
  int status = 0;
  std::string content_type{};
  std::string location{};
};

// Push parser (RFC 9112): bodies of a known length, chunked, or up to the end of the connection;
// interim 1xx responses are skipped, but 101 (another protocol follows) is an error. Body bytes are
// handed on as they come, without a copy.
class HttpResponseParser {
 public:
  using OnBody = absl::FunctionRef<void(std::string_view)>;

  // `bytes` may end anywhere. kInvalidArgument: not HTTP, or more than the limits below; the
  // connection is then of no more use.
  absl::Status Feed(std::string_view bytes, OnBody on_body);

  // The server closed the connection. kUnavailable unless the response was complete or ends so.
  absl::Status FeedEnd();

  bool has_head() const { return state_ > State::kHead; }
  bool is_done() const { return state_ == State::kDone; }
  // Whether another request may follow on this connection; valid when done.
  bool keeps_alive() const { return keeps_alive_ && !has_excess_; }
  const ResponseHead& head() const { return head_; }

 private:
  enum class State { kHead, kFixed, kChunkSize, kChunkData, kChunkEnd, kTrailer, kToClose, kDone };

  static constexpr size_t kMaxHeadBytes = 64 * 1024;
  static constexpr size_t kMaxLineBytes = 8 * 1024;

  bool TakeLine(std::string_view& bytes, absl::Status& status);
  absl::Status OnLine();
  absl::Status StatusLine(std::string_view line);
  absl::Status Field(std::string_view line);
  absl::Status EndOfHead();
  absl::Status ChunkSize(std::string_view line);

  State state_ = State::kHead;
  std::string line_;
  size_t head_bytes_ = 0;
  uint64_t remaining_ = 0;  // of the body or of the chunk
  bool has_status_line_ = false;
  bool is_chunked_ = false;
  bool has_length_ = false;
  bool keeps_alive_ = true;
  bool has_excess_ = false;
  ResponseHead head_;
};

}  // namespace weightless::loadtest
