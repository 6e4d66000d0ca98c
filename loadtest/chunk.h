// What one chunk of a streamed answer says, as far as a measurement needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weightless::loadtest {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the server's prefix cache
};

struct Chunk {
  // Bytes of generated text as they stand in the JSON (escapes count as written): content,
  // reasoning, refusal or the text of a completion; one for each tool call.
  uint32_t content_bytes = 0;
  std::optional<uint32_t> num_token_ids;  // choices[..].token_ids, when the server sends them
  std::string_view finish_reason;         // empty when null; points into the chunk
  std::optional<Usage> usage;
  bool is_error = false;  // has a top-level "error" that is not null
  std::string text;       // the content itself; by ParseChunk only
};

// One pass over the text without building a tree. False when the text is not JSON of the expected
// shape or holds something this scan does not decide (an escape in a key or a reason, a character
// outside ASCII, a number that is not an integer where a count belongs); `chunk` is then
// unspecified.
bool ScanChunk(std::string_view json, Chunk& chunk);

// The same by a full parse: slower, decides everything. kInvalidArgument when it is not JSON or not
// an object. `reason` keeps what chunk.finish_reason points to.
absl::Status ParseChunk(std::string_view json, Chunk& chunk, std::string& reason);

}  // namespace weightless::loadtest
