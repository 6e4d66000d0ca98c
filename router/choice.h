// The text of one choice: tokens in, text that may be sent out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/detokenizer.h"
#include "model/stop_matcher.h"
#include "router/generation_options.h"

namespace weightless::router {

// Number of characters (code points) of valid UTF-8.
size_t NumCharacters(std::string_view text);

// Detokenises, finds stop strings and decides how the choice ends. A stop string is looked for in
// the text after the first min_tokens tokens. The outcome does not depend on how tokens arrive.
// Owned by one thread.
class Choice {
 public:
  // What ended it, as `stop_reason` reports it: nothing (end of sequence, length), the stop token's
  // id, or the stop string.
  using StopReason = std::variant<std::monostate, int32_t, std::string>;

  // `tokenizer` and `options` outlive this.
  Choice(const model::Tokenizer& tokenizer, const GenerationOptions& options);

  // One more token; returns the text that may be sent. CHECK-fails once finished.
  std::string Push(int32_t token);
  // The sequence ended with `token`, one of its stop tokens; `is_eos` if it is one of the model's.
  std::string PushStopToken(int32_t token, bool is_eos);
  // The sequence ended at its length.
  std::string EndAtLength();

  bool finished() const { return finish_reason_ != nullptr; }
  // "stop" or "length".
  std::string_view finish_reason() const { return finish_reason_; }
  const StopReason& stop_reason() const { return stop_reason_; }
  int64_t num_tokens() const { return num_tokens_; }
  // Characters of all text so far, sent or held back: where the next token's text begins.
  size_t num_characters() const { return num_characters_; }

 private:
  std::string Filter(std::string text);
  std::string StopTokenText(int32_t token);

  const model::Tokenizer& tokenizer_;
  const GenerationOptions& options_;
  model::Detokenizer detokenizer_;
  model::StopMatcher matcher_;
  int64_t num_tokens_ = 0;
  size_t num_characters_ = 0;
  const char* finish_reason_ = nullptr;
  StopReason stop_reason_;
};

}  // namespace weightless::router
