// One streamed answer, from its first byte to its end, written into a Record.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "loadtest/http_client.h"
#include "loadtest/record.h"
#include "loadtest/sse_parser.h"

namespace weightless::loadtest {

// The owner keeps reader and record until `on_end`, which is called last and may delete the reader.
class StreamReader : public ResponseHandler {
 public:
  // `live_tokens` counts chunks with content as they come, over all streams.
  StreamReader(Record& record, uint64_t& live_tokens, std::function<void(StreamReader&)> on_end)
      : record_(record), live_tokens_(live_tokens), on_end_(std::move(on_end)) {}

  // Keeps the text of the answer in the record; costs a full parse of each chunk.
  void KeepText() { keeps_text_ = true; }

  void OnHead(const ResponseHead& head) override;
  absl::Status OnBody(std::string_view bytes, SteadyTime when) override;
  void OnEnd(const ExchangeEnd& end) override;

  Record& record() { return record_; }

 private:
  void OnData(std::string_view data, SteadyTime when);
  void OnChunk(const Chunk& chunk, SteadyTime when);
  void OnUnfinished();
  void Fail(std::string message);

  Record& record_;
  uint64_t& live_tokens_;
  std::function<void(StreamReader&)> on_end_;
  ResponseHead head_;
  SseParser sse_;
  std::string error_body_;  // the beginning of the body of a refusal
  std::string reason_;
  bool keeps_text_ = false;
};

}  // namespace weightless::loadtest
