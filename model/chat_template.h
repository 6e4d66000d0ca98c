// Messages to prompt text.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"

namespace weightless::model {

struct ChatMessage {
  std::string role;                // "system", "developer" (= system), "user", "assistant"
  std::vector<std::string> parts;  // text parts; one for plain string content
  bool is_list = false;            // content was a list of parts
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // The last message is left open; excludes add_generation_prompt.
  bool continue_final_message = false;
};

// Renders the Gemma 3 template into pieces, the first being "<bos>". Text a user typed is a piece
// with parse_special = false, so control tokens in it are inert. kInvalidArgument says what breaks
// the template's rules: unknown role, no alternation, only a system message, nothing at all.
absl::StatusOr<std::vector<TextPiece>> RenderGemma3Chat(const std::vector<ChatMessage>& messages,
                                                        const ChatOptions& options);

}  // namespace weightless::model
