// "chat.completion" and "chat.completion.chunk".
#include "router/json_writer.h"
#include "router/response_parts.h"

namespace weightless::router {
namespace {

class ChatFormat : public ResponseFormat {
 public:
  ChatFormat(ResponseHeader header, const model::Tokenizer& tokenizer)
      : header_(std::move(header)),
        tokenizer_(tokenizer),
        event_("data: {" + HeaderFields(header_, "chat.completion.chunk")) {}

  void AppendOpening(std::string& out, int index, std::span<const int32_t> prompt_ids,
                     const Usage* usage) override {
    BeginChoice(out, index);
    out += R"({"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])";
    if (header_.with_token_ids) {
      out += ",\"prompt_token_ids\":";
      AppendIntArray(out, prompt_ids);
    }
    AppendEventEnd(out, header_, usage);
  }

  void AppendPiece(std::string& out, int index, const Piece& piece, const Usage* usage) override {
    BeginChoice(out, index);
    out += "{\"content\":";
    AppendJsonString(out, piece.text);
    out += "},\"logprobs\":";
    AppendLogprobs(out, piece.logprobs);
    if (header_.with_token_ids) {
      out += ",\"token_ids\":";
      AppendIntArray(out, piece.token_ids);
    }
    out += ",\"finish_reason\":null}]";
    AppendEventEnd(out, header_, usage);
  }

  void AppendFinish(std::string& out, int index, std::string_view finish_reason,
                    const Choice::StopReason& stop_reason, const Usage* usage) override {
    BeginChoice(out, index);
    out += R"({},"logprobs":null)";
    AppendEnding(out, finish_reason, stop_reason);
    out += "}]";
    AppendEventEnd(out, header_, usage);
  }

  void AppendUsage(std::string& out, const Usage& usage) override {
    out += event_;
    out += ",\"choices\":[]";
    AppendEventEnd(out, header_, &usage);
  }

  std::string Whole(std::span<const ChoiceResult> choices, const Usage& usage) override {
    std::string out = "{" + HeaderFields(header_, "chat.completion") + ",\"choices\":[";
    for (size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) out += ',';
      AppendWholeChoice(out, static_cast<int>(i), choices[i]);
    }
    out += "],\"usage\":";
    AppendUsageObject(out, usage);
    if (header_.with_token_ids) {
      out += ",\"prompt_token_ids\":";
      AppendIntArray(out, choices.front().prompt_token_ids);
    }
    if (header_.with_prompt_logprobs) {
      out += ",\"prompt_logprobs\":";
      AppendPromptLogprobs(out, tokenizer_, choices.front().prompt_logprobs);
    }
    out += '}';
    return out;
  }

 private:
  void BeginChoice(std::string& out, int index) const {
    out += event_;
    out += ",\"choices\":[{\"index\":";
    AppendJsonInt(out, index);
    out += ",\"delta\":";
  }

  void AppendWholeChoice(std::string& out, int index, const ChoiceResult& choice) const {
    out += "{\"index\":";
    AppendJsonInt(out, index);
    out += R"(,"message":{"role":"assistant","content":)";
    AppendJsonString(out, choice.text);
    out += ",\"refusal\":null},\"logprobs\":";
    AppendLogprobs(out, choice.logprobs);
    AppendEnding(out, choice.finish_reason, choice.stop_reason);
    if (header_.with_token_ids) {
      out += ",\"token_ids\":";
      AppendIntArray(out, choice.token_ids);
    }
    out += '}';
  }

  void AppendLogprobs(std::string& out, std::span<const LoggedToken> tokens) const {
    if (!header_.with_logprobs) {
      out += "null";
      return;
    }
    out += "{\"content\":[";
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      AppendLoggedToken(out, *tokens[i].logprobs);
    }
    out += "],\"refusal\":null}";
  }

  void AppendLoggedToken(std::string& out, const proto::Logprobs& logprobs) const {
    AppendTokenFields(out, logprobs.token(), logprobs.logprob());
    out += ",\"top_logprobs\":[";
    for (int i = 0; i < logprobs.top_tokens_size(); ++i) {
      if (i > 0) out += ',';
      AppendTokenFields(out, logprobs.top_tokens(i), logprobs.top_logprobs(i));
      out += '}';
    }
    out += "]}";
  }

  // An object without its closing brace.
  void AppendTokenFields(std::string& out, int32_t token, float logprob) const {
    out += "{\"token\":";
    AppendJsonString(out, TokenText(tokenizer_, token));
    out += ",\"logprob\":";
    AppendJsonFloat(out, logprob);
    out += ",\"bytes\":[";
    bool first = true;
    for (const char c : tokenizer_.TokenBytes(token)) {
      if (!std::exchange(first, false)) out += ',';
      AppendJsonInt(out, static_cast<unsigned char>(c));
    }
    out += ']';
  }

  const ResponseHeader header_;
  const model::Tokenizer& tokenizer_;
  const std::string event_;  // the part all events have in common
};

}  // namespace

std::unique_ptr<ResponseFormat> MakeChatFormat(ResponseHeader header,
                                               const model::Tokenizer& tokenizer) {
  return std::make_unique<ChatFormat>(std::move(header), tokenizer);
}

}  // namespace weightless::router
