// What is kept of one request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/chunk.h"
#include "loadtest/steady_time.h"

namespace weightless::loadtest {

enum class Outcome {
  kRunning,
  kCompleted,  // the answer came to its end: a finish reason or [DONE]
  kFailed,     // refused, broken off, an error in the stream, or timed out
  kCancelled,  // by the user, who ended the run
};

// A chunk with content: when the read that completed it returned.
struct ContentMark {
  SteadyTime when;
  uint32_t num_token_ids = 0;  // 0 when the server does not send them
};

struct Record {
  // What was asked.
  size_t index = 0;
  size_t target = 0;         // which server, with --compare
  size_t planned_input = 0;  // tokens of the prompt without its template; 0 when unknown
  size_t max_tokens = 0;
  // When the arrival process wanted it sent; closed loop: when it was its turn.
  SteadyTime intended;

  // What happened.
  Outcome outcome = Outcome::kRunning;
  std::string error;  // of a failed request
  int http_status = 0;
  double connect_seconds = 0;
  SteadyTime sent;
  SteadyTime ended;
  std::optional<SteadyTime> first_chunk;  // of any kind, also the role alone
  std::vector<ContentMark> content;       // every chunk with content, in order
  uint64_t content_bytes = 0;
  std::optional<Usage> usage;
  std::string finish_reason;

  // What the audit looks at.
  int num_finish_reasons = 0;
  int num_content_after_finish = 0;
  int num_events_after_done = 0;
  bool has_done = false;
  bool ended_with_neither = false;  // events, then the end of the response: no reason, no [DONE]
  bool found_no_socket = false;     // this machine had no file or port for the connection
  bool has_token_ids = false;
  uint64_t num_token_ids = 0;
  std::string text;  // only when the run keeps it
};

// Tokens of the answer: the usage of the server, else its token ids, else one for each chunk with
// content.
inline uint64_t OutputTokens(const Record& record) {
  if (record.usage) return static_cast<uint64_t>(record.usage->completion_tokens);
  return record.has_token_ids ? record.num_token_ids : record.content.size();
}

// Tokens of the prompt as the server counted them, else as planned.
inline uint64_t InputTokens(const Record& record) {
  if (record.usage) return static_cast<uint64_t>(record.usage->prompt_tokens);
  return record.planned_input;
}

}  // namespace weightless::loadtest
