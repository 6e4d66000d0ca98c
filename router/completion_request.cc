#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/status.h"
#include "router/body_object.h"
#include "router/field_reader.h"
#include "router/openai_api.h"

namespace weightless::router {
namespace {

namespace json = boost::json;

constexpr size_t kMaxElements = size_t{1} << 23;  // the body's limit binds first

std::vector<int32_t> ReadIds(FieldReader& reader, std::string_view name, const json::array& ids,
                             int vocab_size) {
  std::vector<int32_t> out;
  if (ids.empty()) reader.Fail(name, "out_of_range", "is empty");
  ReadTokenIds(reader, name, ids, vocab_size, out);
  return out;
}

// A string, an array of strings, a token array, or an array of token arrays.
void ReadPrompts(FieldReader& reader, const RequestLimits& limits, CompletionRequest& request) {
  const json::value* prompt = reader.Find("prompt");
  if (!reader.ok()) return;
  if (prompt == nullptr) return reader.Fail("prompt", "missing_field", "is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back(std::string(prompt->get_string()));
    return;
  }
  if (!prompt->is_array()) {
    return reader.Fail("prompt", "invalid_type",
                       Concat("must be a string or an array, not ", KindName(*prompt)));
  }
  const json::array* list = reader.Array("prompt", kMaxElements);
  if (list->empty()) return reader.Fail("prompt", "out_of_range", "is empty");
  if (list->front().is_number()) {
    request.prompts.emplace_back(ReadIds(reader, "prompt", *list, limits.vocab_size));
    return;
  }
  if (list->size() > static_cast<size_t>(limits.max_sequences)) {
    return reader.Fail("prompt", "out_of_range",
                       Concat("has ", list->size(), " prompts, more than ", limits.max_sequences));
  }
  for (size_t i = 0; i < list->size() && reader.ok(); ++i) {
    const json::value& element = (*list)[i];
    const std::string name = Concat("prompt[", i, "]");
    if (element.is_string()) {
      request.prompts.emplace_back(std::string(element.get_string()));
    } else if (element.is_array()) {
      request.prompts.emplace_back(ReadIds(reader, name, element.get_array(), limits.vocab_size));
    } else {
      reader.Fail(name, "invalid_type",
                  Concat("must be a string or an array of token ids, not ", KindName(element)));
    }
  }
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                         const RequestLimits& limits) {
  ASSIGN_OR_RETURN(const json::value value, ParseBodyObject(body));
  FieldReader reader(value.get_object(), "");
  CompletionRequest request;
  request.options = ReadGenerationOptions(reader, limits);
  reader.Bool("echo", request.echo);
  reader.Bool("add_special_tokens", request.add_special_tokens);
  // max_completion_tokens is of the chat API; clients that speak to both send it here, too.
  ReadMaxTokens(reader, 0, request.options);
  if (request.options.max_tokens == 0 && !request.echo) {
    reader.Fail("max_tokens", "out_of_range", "0 is not in [1, 2147483647] unless echo is true");
  }
  std::optional<int64_t> logprobs;
  reader.Int("logprobs", 0, kMaxLogprobs, logprobs);
  if (logprobs) request.options.logprobs = static_cast<int>(*logprobs);
  ReadPrompts(reader, limits, request);
  const size_t num_sequences = request.prompts.size() * static_cast<size_t>(request.options.n);
  if (num_sequences > static_cast<size_t>(limits.max_sequences)) {
    reader.Fail(
        "prompt", "out_of_range",
        Concat("times n asks for ", num_sequences, " choices, more than ", limits.max_sequences));
  }
  RETURN_IF_ERROR(reader.status());
  request.options.num_unknown_fields = reader.num_unknown();
  return request;
}

}  // namespace weightless::router
