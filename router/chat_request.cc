#include "router/chat_request.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/status.h"
#include "router/body_object.h"
#include "router/field_reader.h"

namespace weightless::router {
namespace {

namespace json = boost::json;

constexpr size_t kMaxMessages = 16384;
constexpr size_t kMaxParts = 16384;
constexpr size_t kMaxBytes = size_t{1} << 30;  // the body's limit binds first

void ReadPart(FieldReader& reader, const std::string& path, const json::value& value,
              model::ChatMessage& message) {
  if (!value.is_object()) {
    return reader.Fail(path, "invalid_type", Concat("must be an object, not ", KindName(value)));
  }
  FieldReader part(value.get_object(), reader.PathOf(path));
  std::string type, text;
  part.String("type", kMaxBytes, type);
  if (part.ok() && type.empty()) part.Fail("type", "missing_field", "is missing");
  if (part.ok() && type != "text") {
    part.Fail("type", "unsupported_field",
              Concat(Quoted(type), " is not supported, only \"text\""));
  }
  if (part.ok() && part.Find("text") == nullptr) part.Fail("text", "missing_field", "is missing");
  part.String("text", kMaxBytes, text);
  reader.Absorb(part);
  message.parts.push_back(std::move(text));
}

void ReadContent(FieldReader& reader, model::ChatMessage& message) {
  const json::value* content = reader.Find("content");
  if (!reader.ok()) return;
  if (content == nullptr) return reader.Fail("content", "missing_field", "is missing");
  if (content->is_string()) {
    message.parts.emplace_back(content->get_string().data(), content->get_string().size());
    return;
  }
  if (!content->is_array()) {
    return reader.Fail("content", "invalid_type",
                       Concat("must be a string or an array of parts, not ", KindName(*content)));
  }
  message.is_list = true;
  const json::array* parts = reader.Array("content", kMaxParts);
  for (size_t i = 0; parts != nullptr && i < parts->size() && reader.ok(); ++i) {
    ReadPart(reader, Concat("content[", i, "]"), (*parts)[i], message);
  }
}

void ReadMessage(FieldReader& body, const std::string& path, const json::value& value,
                 model::ChatMessage& message) {
  if (!value.is_object()) {
    return body.Fail(path, "invalid_type", Concat("must be an object, not ", KindName(value)));
  }
  FieldReader reader(value.get_object(), path);
  std::string name;
  reader.String("role", 64, message.role);
  if (message.role.empty()) reader.Fail("role", "missing_field", "is missing");
  if (message.role == "tool" || message.role == "function") {
    reader.Fail("role", "unsupported_field", Concat(Quoted(message.role), " is not supported"));
  }
  if (message.role != "system" && message.role != "developer" && message.role != "user" &&
      message.role != "assistant") {
    reader.Fail("role", "invalid_value",
                Concat(Quoted(message.role), " is none of system, developer, user, assistant"));
  }
  reader.String("name", 1024, name);
  for (const char* field : {"tool_calls", "function_call", "audio", "refusal"}) {
    reader.Refuse(field);
  }
  ReadContent(reader, message);
  body.Absorb(reader);
}

void ReadLogprobs(FieldReader& reader, GenerationOptions& options) {
  bool logprobs = false;
  int64_t top_logprobs = 0;
  reader.Bool("logprobs", logprobs);
  reader.Int("top_logprobs", 0, kMaxLogprobs, top_logprobs);
  if (top_logprobs > 0 && !logprobs) {
    reader.Fail("top_logprobs", "invalid_value", "is only allowed when logprobs is true");
  }
  if (logprobs) options.logprobs = static_cast<int>(top_logprobs);
}

void ReadModalities(FieldReader& reader) {
  const json::array* modalities = reader.Array("modalities", 16);
  for (size_t i = 0; modalities != nullptr && i < modalities->size(); ++i) {
    const json::value& modality = (*modalities)[i];
    if (!modality.is_string() || modality.get_string() != "text") {
      reader.Fail("modalities", "unsupported_field", "may only hold \"text\"");
    }
  }
}

}  // namespace

void ReadChat(FieldReader& reader, ChatRequest& request) {
  const json::array* messages = reader.Array("messages", kMaxMessages);
  if (messages == nullptr || messages->empty()) {
    return reader.Fail("messages", "missing_field", "is missing or empty");
  }
  request.messages.resize(messages->size());
  for (size_t i = 0; i < messages->size() && reader.ok(); ++i) {
    ReadMessage(reader, Concat("messages[", i, "]"), (*messages)[i], request.messages[i]);
  }
  bool continue_final = false, generation_prompt = true;
  const bool asked_for_prompt = reader.Find("add_generation_prompt") != nullptr;
  reader.Bool("continue_final_message", continue_final);
  reader.Bool("add_generation_prompt", generation_prompt);
  if (continue_final && asked_for_prompt && generation_prompt) {
    reader.Fail("continue_final_message", "invalid_value",
                "and add_generation_prompt exclude each other");
  }
  request.chat.continue_final_message = continue_final;
  request.chat.add_generation_prompt = generation_prompt && !continue_final;
  // The template has no variables of its own, and prints the one BOS a prompt has.
  bool add_special_tokens = false;
  reader.Object("chat_template_kwargs");
  reader.Bool("add_special_tokens", add_special_tokens);
  for (const char* name : {"chat_template", "documents"}) reader.Refuse(name);
}

absl::StatusOr<ChatRequest> ParseChatRequest(std::string_view body, const RequestLimits& limits) {
  ASSIGN_OR_RETURN(const json::value value, ParseBodyObject(body));
  FieldReader reader(value.get_object(), "");
  ChatRequest request;
  request.options = ReadGenerationOptions(reader, limits);
  ReadMaxTokens(reader, 1, request.options);
  ReadLogprobs(reader, request.options);
  ReadModalities(reader);
  ReadChat(reader, request);
  RETURN_IF_ERROR(reader.status());
  request.options.num_unknown_fields = reader.num_unknown();
  return request;
}

}  // namespace weightless::router
