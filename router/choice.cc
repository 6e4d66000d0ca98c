#include "router/choice.h"

#include "common/check.h"

namespace weightless::router {

size_t NumCharacters(std::string_view text) {
  size_t num_characters = 0;
  for (const char c : text) num_characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return num_characters;
}

Choice::Choice(const model::Tokenizer& tokenizer, const GenerationOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      detokenizer_(tokenizer, options.skip_special_tokens),
      matcher_(options.stop, options.include_stop_str_in_output) {}

std::string Choice::Filter(std::string text) {
  num_characters_ += NumCharacters(text);
  if (options_.stop.empty() || num_tokens_ <= options_.min_tokens) return text;
  std::string sendable = matcher_.Push(text);
  if (matcher_.stopped()) {
    finish_reason_ = "stop";
    stop_reason_ = matcher_.matched();
  }
  return sendable;
}

std::string Choice::Push(int32_t token) {
  CHECK(!finished());
  ++num_tokens_;
  return Filter(detokenizer_.Push(token));
}

std::string Choice::StopTokenText(int32_t token) {
  if (!options_.include_stop_str_in_output) return detokenizer_.Finish();
  if (tokenizer_.IsSpecial(token) && options_.skip_special_tokens) {
    std::string text = detokenizer_.Finish();
    text += tokenizer_.TokenBytes(token);
    return text;
  }
  std::string text = detokenizer_.Push(token);
  text += detokenizer_.Finish();
  return text;
}

std::string Choice::PushStopToken(int32_t token, bool is_eos) {
  CHECK(!finished());
  ++num_tokens_;
  std::string sendable = Filter(StopTokenText(token));
  if (finished()) return sendable;
  sendable += matcher_.Finish();
  finish_reason_ = "stop";
  if (matcher_.stopped()) {
    stop_reason_ = matcher_.matched();
  } else if (!is_eos) {
    stop_reason_ = token;
  }
  return sendable;
}

std::string Choice::EndAtLength() {
  CHECK(!finished());
  std::string sendable = Filter(detokenizer_.Finish());
  if (finished()) return sendable;
  sendable += matcher_.Finish();
  finish_reason_ = matcher_.stopped() ? "stop" : "length";
  if (matcher_.stopped()) stop_reason_ = matcher_.matched();
  return sendable;
}

}  // namespace weightless::router
