#include "model/chat_template.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

// What Python's str.strip, and so the template's `trim`, takes for white space.
bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view Trim(std::string_view text) {
  size_t begin = text.size();  // of the first character that is no white space
  size_t end = text.size();    // behind the last one
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(i));
    const size_t next = i + static_cast<size_t>(step.length);
    if (step.kind != Utf8Kind::kValid || !IsWhiteSpace(step.code_point)) {
      begin = std::min(begin, i);
      end = next;
    }
    i = next;
  }
  return text.substr(begin, end - begin);
}

class Transcript {
 public:
  void AddMarkup(std::string_view text) { Add(text, true); }
  void AddUserText(std::string_view text) { Add(text, false); }
  std::vector<TextPiece> Release() { return std::move(pieces_); }

 private:
  void Add(std::string_view text, bool parse_special) {
    if (text.empty()) return;
    if (!pieces_.empty() && pieces_.back().parse_special == parse_special) {
      pieces_.back().text += text;
    } else {
      pieces_.push_back({.text = std::string(text), .parse_special = parse_special});
    }
  }

  std::vector<TextPiece> pieces_;
};

bool IsSystem(const ChatMessage& message) {
  return message.role == "system" || message.role == "developer";
}

// Roles must be user, assistant, user, ... after an optional system message.
absl::Status CheckMessages(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  if (messages.empty()) return absl::InvalidArgumentError("messages is empty");
  if (options.add_generation_prompt && options.continue_final_message) {
    return absl::InvalidArgumentError(
        "continue_final_message and add_generation_prompt exclude each other");
  }
  const size_t first = IsSystem(messages[0]) ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(Concat("messages[", i, "].role is ", Quoted(role),
                                               IsSystem(messages[i])
                                                   ? "; a system message can only be the first"
                                                   : "; expected \"user\" or \"assistant\""));
    }
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (role != expected) {
      return absl::InvalidArgumentError(
          Concat("messages[", i, "].role is \"", role, "\", expected \"", expected,
                 "\": roles must alternate user/assistant, starting with user"));
    }
  }
  if (first == messages.size()) {
    return absl::InvalidArgumentError(
        "messages has only a system message; a user message must follow");
  }
  if (first == 1 && messages[0].parts.empty()) {
    return absl::InvalidArgumentError("messages[0].content has no text part");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TextPiece>> RenderGemma3Chat(const std::vector<ChatMessage>& messages,
                                                        const ChatOptions& options) {
  RETURN_IF_ERROR(CheckMessages(messages, options));
  Transcript transcript;
  transcript.AddMarkup("<bos>");
  const size_t first = IsSystem(messages[0]) ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    transcript.AddMarkup(
        Concat("<start_of_turn>", message.role == "assistant" ? "model" : "user", "\n"));
    if (i == 1 && first == 1) {
      // Neither trimmed nor joined: the published template takes the first part as it is.
      transcript.AddUserText(messages[0].parts[0]);
      transcript.AddMarkup("\n\n");
    }
    for (const std::string& part : message.parts) transcript.AddUserText(Trim(part));
    if (options.continue_final_message && i + 1 == messages.size()) break;
    transcript.AddMarkup("<end_of_turn>\n");
  }
  if (options.add_generation_prompt) transcript.AddMarkup("<start_of_turn>model\n");
  return transcript.Release();
}

}  // namespace weightless::model
