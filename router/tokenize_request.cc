#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"
#include "router/api_error.h"
#include "router/body_object.h"
#include "router/chat_request.h"
#include "router/field_reader.h"
#include "router/openai_api.h"

namespace weightless::router {
namespace {

namespace json = boost::json;

constexpr size_t kMaxElements = size_t{1} << 23;  // the body's limit binds first
constexpr size_t kMaxBytes = size_t{1} << 30;

}  // namespace

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  ASSIGN_OR_RETURN(const json::value value, ParseBodyObject(body));
  FieldReader reader(value.get_object(), "");
  TokenizeRequest request;
  reader.String("model", 1024, request.model);
  reader.Bool("return_token_strs", request.return_token_strs);
  if (reader.Find("messages") != nullptr) {
    if (reader.Find("prompt") != nullptr) {
      reader.Fail("prompt", "invalid_value", "and messages exclude each other");
    }
    ChatRequest chat;
    ReadChat(reader, chat);
    request.input = std::move(chat);
  } else {
    std::string prompt;
    if (reader.Find("prompt") == nullptr) reader.Fail("prompt", "missing_field", "is missing");
    reader.String("prompt", kMaxBytes, prompt);
    reader.Bool("add_special_tokens", request.add_special_tokens);
    request.input = std::move(prompt);
  }
  RETURN_IF_ERROR(reader.status());
  request.num_unknown_fields = reader.num_unknown();
  return request;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                         const RequestLimits& limits) {
  ASSIGN_OR_RETURN(const json::value value, ParseBodyObject(body));
  FieldReader reader(value.get_object(), "");
  DetokenizeRequest request;
  reader.String("model", 1024, request.model);
  const json::array* tokens = reader.Array("tokens", kMaxElements);
  if (tokens == nullptr) {
    reader.Fail("tokens", "missing_field", "is missing");
  } else {
    ReadTokenIds(reader, "tokens", *tokens, limits.vocab_size, request.tokens);
  }
  RETURN_IF_ERROR(reader.status());
  request.num_unknown_fields = reader.num_unknown();
  return request;
}

absl::StatusOr<SamplingDefaults> ParseSamplingDefaults(std::string_view text,
                                                       std::string_view name) {
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok() || !value->is_object()) {
    return absl::InvalidArgumentError(
        Concat(name, " is not a JSON object: ", value.ok() ? "" : value.status().message()));
  }
  // Each field by itself: a checkpoint with one odd value still gives the others.
  const auto read = [&](std::string_view field, double min, double max, double otherwise) {
    FieldReader reader(value->get_object(), "");
    std::optional<double> number;
    reader.Float(field, min, max, number);
    return number.value_or(otherwise);
  };
  SamplingDefaults defaults;
  defaults.temperature = read("temperature", 0, 2, defaults.temperature);
  defaults.top_p = read("top_p", 1e-6, 1, defaults.top_p);
  defaults.min_p = read("min_p", 0, 1, defaults.min_p);
  defaults.repetition_penalty = read("repetition_penalty", 1e-6, 2, defaults.repetition_penalty);
  defaults.top_k = static_cast<int64_t>(read("top_k", 0, INT32_MAX, 0));
  return defaults;
}

}  // namespace weightless::router
