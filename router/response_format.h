// What answers look like: the two shapes of OpenAI's API, chat and text completions, whole and as
// server-sent events.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "proto/worker.pb.h"
#include "router/choice.h"

namespace weightless::router {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt tokens
};

// One token whose probability is reported.
struct LoggedToken {
  int32_t token = -1;
  size_t text_offset = 0;                   // characters before it in the choice's text
  std::optional<proto::Logprobs> logprobs;  // absent for the first token of a prompt
};

// A stretch of a choice's text with the tokens that made it.
struct Piece {
  std::string_view text;
  std::span<const LoggedToken> logprobs;  // empty unless asked for
  std::span<const int32_t> token_ids;     // empty unless asked for
};

struct ChoiceResult {
  std::string text;  // with the echoed prompt
  std::vector<LoggedToken> logprobs;
  std::vector<int32_t> token_ids;
  std::span<const int32_t> prompt_token_ids;
  std::vector<LoggedToken> prompt_logprobs;  // the extension, not echo
  std::string_view finish_reason;
  Choice::StopReason stop_reason;
};

struct ResponseHeader {
  std::string id;
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::string system_fingerprint;
  bool with_logprobs = false;
  bool with_prompt_logprobs = false;
  bool with_token_ids = false;
  bool with_usage = false;  // every event has a usage field: null, or the counts so far
};

// Formats one response. The Append functions add whole events ("data: ...\n\n").
class ResponseFormat {
 public:
  virtual ~ResponseFormat() = default;

  // Comes before everything else of choice `index`; may add nothing.
  virtual void AppendOpening(std::string& out, int index, std::span<const int32_t> prompt_ids,
                             const Usage* usage) = 0;
  // usage: the counts so far, null unless the client asked for continuous ones.
  virtual void AppendPiece(std::string& out, int index, const Piece& piece, const Usage* usage) = 0;
  virtual void AppendFinish(std::string& out, int index, std::string_view finish_reason,
                            const Choice::StopReason& stop_reason, const Usage* usage) = 0;
  virtual void AppendUsage(std::string& out, const Usage& usage) = 0;

  virtual std::string Whole(std::span<const ChoiceResult> choices, const Usage& usage) = 0;
};

// `tokenizer` outlives the result.
std::unique_ptr<ResponseFormat> MakeChatFormat(ResponseHeader header,
                                               const model::Tokenizer& tokenizer);
std::unique_ptr<ResponseFormat> MakeCompletionFormat(ResponseHeader header,
                                                     const model::Tokenizer& tokenizer);

inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace weightless::router
