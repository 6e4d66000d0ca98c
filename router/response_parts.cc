#include "router/response_parts.h"

#include "model/utf8.h"
#include "router/json_writer.h"

namespace weightless::router {
namespace {

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const model::Utf8Step step = model::DecodeUtf8(text);
    if (step.kind != model::Utf8Kind::kValid) return false;
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return true;
}

void AppendPromptEntry(std::string& out, const model::Tokenizer& tokenizer, int32_t token,
                       float logprob, int64_t rank) {
  out += '"';
  AppendJsonInt(out, token);
  out += "\":{\"logprob\":";
  AppendJsonFloat(out, logprob);
  out += ",\"rank\":";
  AppendJsonInt(out, rank);
  out += ",\"decoded_token\":";
  AppendJsonString(out, TokenText(tokenizer, token));
  out += '}';
}

}  // namespace

std::string TokenText(const model::Tokenizer& tokenizer, int32_t token) {
  const std::string_view bytes = tokenizer.TokenBytes(token);
  if (IsValidUtf8(bytes)) return std::string(bytes);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "\\x";
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

void AppendIntArray(std::string& out, std::span<const int32_t> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonInt(out, values[i]);
  }
  out += ']';
}

void AppendUsageObject(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  AppendJsonInt(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  AppendJsonInt(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  AppendJsonInt(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  AppendJsonInt(out, usage.cached_tokens);
  out += "}}";
}

void AppendEnding(std::string& out, std::string_view finish_reason,
                  const Choice::StopReason& stop_reason) {
  out += ",\"finish_reason\":";
  AppendJsonString(out, finish_reason);
  out += ",\"stop_reason\":";
  if (const auto* token = std::get_if<int32_t>(&stop_reason)) {
    AppendJsonInt(out, *token);
  } else if (const auto* text = std::get_if<std::string>(&stop_reason)) {
    AppendJsonString(out, *text);
  } else {
    out += "null";
  }
}

void AppendPromptLogprobs(std::string& out, const model::Tokenizer& tokenizer,
                          std::span<const LoggedToken> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    if (!tokens[i].logprobs) {
      out += "null";
      continue;
    }
    const proto::Logprobs& logprobs = *tokens[i].logprobs;
    out += '{';
    AppendPromptEntry(out, tokenizer, logprobs.token(), logprobs.logprob(), logprobs.rank());
    for (int j = 0; j < logprobs.top_tokens_size(); ++j) {
      if (logprobs.top_tokens(j) == logprobs.token()) continue;
      out += ',';
      AppendPromptEntry(out, tokenizer, logprobs.top_tokens(j), logprobs.top_logprobs(j), j + 1);
    }
    out += '}';
  }
  out += ']';
}

std::string HeaderFields(const ResponseHeader& header, std::string_view object) {
  std::string fields = "\"id\":";
  AppendJsonString(fields, header.id);
  fields += ",\"object\":";
  AppendJsonString(fields, object);
  fields += ",\"created\":";
  AppendJsonInt(fields, header.created);
  fields += ",\"model\":";
  AppendJsonString(fields, header.model);
  fields += ",\"system_fingerprint\":";
  AppendJsonString(fields, header.system_fingerprint);
  return fields;
}

void AppendEventEnd(std::string& out, const ResponseHeader& header, const Usage* usage) {
  if (usage != nullptr) {
    out += ",\"usage\":";
    AppendUsageObject(out, *usage);
  } else if (header.with_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

}  // namespace weightless::router
