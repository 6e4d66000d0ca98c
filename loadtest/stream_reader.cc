#include "loadtest/stream_reader.h"

#include <algorithm>
#include <utility>

#include "common/concat.h"
#include "loadtest/error_text.h"

namespace weightless::loadtest {

void StreamReader::OnHead(const ResponseHead& head) {
  head_ = head;
  record_.http_status = head.status;
}

absl::Status StreamReader::OnBody(std::string_view bytes, SteadyTime when) {
  if (head_.status == 200) {
    return sse_.Feed(bytes, [this, when](std::string_view data) { OnData(data, when); });
  }
  constexpr size_t kMaxErrorBytes = 1000;
  error_body_.append(
      bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body_.size())));
  return absl::OkStatus();
}

void StreamReader::OnData(std::string_view data, SteadyTime when) {
  if (record_.has_done) ++record_.num_events_after_done;
  if (data == "[DONE]") {
    record_.has_done = true;
    return;
  }
  if (!record_.first_chunk) record_.first_chunk = when;
  Chunk chunk;
  if (keeps_text_ || !ScanChunk(data, chunk)) {
    chunk = {};
    const absl::Status status = ParseChunk(data, chunk, reason_);
    if (!status.ok()) return Fail(Concat("a chunk is ", std::string(status.message())));
  }
  if (chunk.is_error) return Fail("error in the stream: " + Excerpt(data));
  OnChunk(chunk, when);
}

void StreamReader::OnChunk(const Chunk& chunk, SteadyTime when) {
  if (chunk.content_bytes > 0) {
    if (record_.num_finish_reasons > 0) ++record_.num_content_after_finish;
    record_.content.push_back({when, chunk.num_token_ids.value_or(0)});
    record_.content_bytes += chunk.content_bytes;
    record_.text += chunk.text;
    ++live_tokens_;
  }
  if (chunk.num_token_ids) {
    record_.has_token_ids = true;
    record_.num_token_ids += *chunk.num_token_ids;
  }
  if (!chunk.finish_reason.empty()) {
    record_.finish_reason = chunk.finish_reason;
    ++record_.num_finish_reasons;
  }
  if (chunk.usage) record_.usage = chunk.usage;
}

void StreamReader::Fail(std::string message) {
  if (record_.error.empty()) record_.error = std::move(message);
}

// An end in order that is none of a stream: its events stop without a word.
void StreamReader::OnUnfinished() {
  record_.ended_with_neither =
      record_.error.empty() &&
      (record_.first_chunk.has_value() || head_.content_type.starts_with("text/event-stream"));
  Fail(Concat("the stream ended without a finish reason and without [DONE] (Content-Type ",
              Excerpt(head_.content_type), ")"));
}

void StreamReader::OnEnd(const ExchangeEnd& end) {
  if (end.status.ok()) {
    sse_.FeedEnd([this, &end](std::string_view data) { OnData(data, end.ended); });
  }
  record_.sent = end.sent;
  record_.ended = end.ended;
  record_.connect_seconds = end.connect_seconds;
  if (!end.status.ok()) {
    Fail(std::string(end.status.message()));
  } else if (head_.status != 200) {
    Fail(RefusalText(head_, error_body_));
  } else if (!record_.has_done && record_.num_finish_reasons == 0) {
    OnUnfinished();
  }
  record_.found_no_socket = end.status.code() == absl::StatusCode::kResourceExhausted;
  const bool was_cancelled = end.status.code() == absl::StatusCode::kCancelled;
  record_.outcome = was_cancelled           ? Outcome::kCancelled
                    : record_.error.empty() ? Outcome::kCompleted
                                            : Outcome::kFailed;
  const auto on_end = std::move(on_end_);  // may delete this
  on_end(*this);
}

}  // namespace weightless::loadtest
