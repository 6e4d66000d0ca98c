// "text_completion", whole and streamed.
#include <set>

#include "router/json_writer.h"
#include "router/response_parts.h"

namespace weightless::router {
namespace {

class CompletionFormat : public ResponseFormat {
 public:
  CompletionFormat(ResponseHeader header, const model::Tokenizer& tokenizer)
      : header_(std::move(header)),
        tokenizer_(tokenizer),
        fields_(HeaderFields(header_, "text_completion")) {}

  void AppendOpening(std::string& out, int index, std::span<const int32_t> prompt_ids,
                     const Usage* usage) override {
    if (!header_.with_token_ids) return;
    BeginChoice(out, index);
    out += R"("","logprobs":null,"finish_reason":null,"prompt_token_ids":)";
    AppendIntArray(out, prompt_ids);
    out += "}]";
    AppendEventEnd(out, header_, usage);
  }

  void AppendPiece(std::string& out, int index, const Piece& piece, const Usage* usage) override {
    BeginChoice(out, index);
    AppendJsonString(out, piece.text);
    out += ",\"logprobs\":";
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
    out += R"("","logprobs":null)";
    AppendEnding(out, finish_reason, stop_reason);
    out += "}]";
    AppendEventEnd(out, header_, usage);
  }

  void AppendUsage(std::string& out, const Usage& usage) override {
    out += "data: {";
    out += fields_;
    out += ",\"choices\":[]";
    AppendEventEnd(out, header_, &usage);
  }

  std::string Whole(std::span<const ChoiceResult> choices, const Usage& usage) override {
    std::string out = "{" + fields_ + ",\"choices\":[";
    for (size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) out += ',';
      AppendWholeChoice(out, static_cast<int>(i), choices[i]);
    }
    out += "],\"usage\":";
    AppendUsageObject(out, usage);
    out += '}';
    return out;
  }

 private:
  void BeginChoice(std::string& out, int index) const {
    out += "data: {";
    out += fields_;
    out += ",\"choices\":[{\"index\":";
    AppendJsonInt(out, index);
    out += ",\"text\":";
  }

  void AppendWholeChoice(std::string& out, int index, const ChoiceResult& choice) const {
    out += "{\"index\":";
    AppendJsonInt(out, index);
    out += ",\"text\":";
    AppendJsonString(out, choice.text);
    out += ",\"logprobs\":";
    AppendLogprobs(out, choice.logprobs);
    AppendEnding(out, choice.finish_reason, choice.stop_reason);
    if (header_.with_token_ids) {
      out += ",\"prompt_token_ids\":";
      AppendIntArray(out, choice.prompt_token_ids);
      out += ",\"token_ids\":";
      AppendIntArray(out, choice.token_ids);
    }
    if (header_.with_prompt_logprobs) {
      out += ",\"prompt_logprobs\":";
      AppendPromptLogprobs(out, tokenizer_, choice.prompt_logprobs);
    }
    out += '}';
  }

  // Four arrays with one element for each token.
  void AppendLogprobs(std::string& out, std::span<const LoggedToken> tokens) const {
    if (!header_.with_logprobs) {
      out += "null";
      return;
    }
    out += '{';
    AppendColumn(out, "\"text_offset\":[", tokens, [&](const LoggedToken& token) {
      AppendJsonInt(out, static_cast<int64_t>(token.text_offset));
    });
    AppendColumn(out, ",\"tokens\":[", tokens, [&](const LoggedToken& token) {
      AppendJsonString(out, TokenText(tokenizer_, token.token));
    });
    AppendColumn(out, ",\"token_logprobs\":[", tokens, [&](const LoggedToken& token) {
      if (!token.logprobs) {
        out += "null";
      } else {
        AppendJsonFloat(out, token.logprobs->logprob());
      }
    });
    AppendColumn(out, ",\"top_logprobs\":[", tokens,
                 [&](const LoggedToken& token) { AppendAlternatives(out, token); });
    out += '}';
  }

  template <typename AppendElement>
  static void AppendColumn(std::string& out, std::string_view open,
                           std::span<const LoggedToken> tokens, AppendElement append) {
    out += open;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      append(tokens[i]);
    }
    out += ']';
  }

  // The most likely tokens, and the chosen one if it is not among them. Different tokens can have
  // the same text; the more likely one stands for it.
  void AppendAlternatives(std::string& out, const LoggedToken& token) const {
    if (!token.logprobs) {
      out += "null";
      return;
    }
    std::set<std::string> seen;
    out += '{';
    const auto append = [&](int32_t id, float logprob) {
      std::string text = TokenText(tokenizer_, id);
      if (seen.contains(text)) return;
      if (!seen.empty()) out += ',';
      AppendJsonString(out, text);
      out += ':';
      AppendJsonFloat(out, logprob);
      seen.insert(std::move(text));
    };
    const proto::Logprobs& logprobs = *token.logprobs;
    for (int i = 0; i < logprobs.top_tokens_size(); ++i) {
      append(logprobs.top_tokens(i), logprobs.top_logprobs(i));
    }
    append(logprobs.token(), logprobs.logprob());
    out += '}';
  }

  const ResponseHeader header_;
  const model::Tokenizer& tokenizer_;
  const std::string fields_;
};

}  // namespace

std::unique_ptr<ResponseFormat> MakeCompletionFormat(ResponseHeader header,
                                                     const model::Tokenizer& tokenizer) {
  return std::make_unique<CompletionFormat>(std::move(header), tokenizer);
}

}  // namespace weightless::router
