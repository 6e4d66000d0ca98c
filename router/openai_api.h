// Request bodies of the HTTP surface, read and validated: strict types, a 400 names the field.
// Nothing here knows sockets or the engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "router/generation_options.h"

namespace weightless::router {

struct ChatRequest {
  GenerationOptions options;
  std::vector<model::ChatMessage> messages;
  model::ChatOptions chat;
};

// Text, or token ids used as they are.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  GenerationOptions options;         // max_tokens 0 only together with echo
  std::vector<PromptInput> prompts;  // at least one
  bool echo = false;
  bool add_special_tokens = true;
};

// POST /tokenize: of text or of a chat.
struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatRequest> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  int num_unknown_fields = 0;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  int num_unknown_fields = 0;
};

// Errors are kInvalidArgument with code and param (router/api_error.h).
absl::StatusOr<ChatRequest> ParseChatRequest(std::string_view body, const RequestLimits& limits);
absl::StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                         const RequestLimits& limits);
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body);
absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                         const RequestLimits& limits);

// What the model's generation_config.json says where a request does not. Unreadable input gives an
// error that names `name`; fields of other kinds or out of range are left out.
struct SamplingDefaults {
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t top_k = 0;
};
absl::StatusOr<SamplingDefaults> ParseSamplingDefaults(std::string_view json,
                                                       std::string_view name);

}  // namespace weightless::router
