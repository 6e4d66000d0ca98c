#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/json.h"
#include "common/status.h"
#include "loadtest/chunk.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

const json::object* ObjectIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value == nullptr ? nullptr : value->if_object();
}

const json::array* ArrayIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value == nullptr ? nullptr : value->if_array();
}

void ReadText(const json::object& object, std::string_view key, Chunk& chunk) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_string()) return;
  chunk.content_bytes += static_cast<uint32_t>(value->get_string().size());
  chunk.text.append(value->get_string().data(), value->get_string().size());
}

int64_t Count(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_number()) return 0;
  boost::system::error_code ec;
  const auto count = value->to_number<int64_t>(ec);
  return ec || count < 0 ? 0 : count;
}

void ReadChoice(const json::object& choice, Chunk& chunk, std::string& reason) {
  if (const json::object* delta = ObjectIn(choice, "delta")) {
    for (const char* key : {"content", "reasoning_content", "reasoning", "refusal"}) {
      ReadText(*delta, key, chunk);
    }
    if (const json::array* calls = ArrayIn(*delta, "tool_calls")) {
      chunk.content_bytes += static_cast<uint32_t>(calls->size());
    }
  }
  ReadText(choice, "text", chunk);
  if (const json::array* ids = ArrayIn(choice, "token_ids")) {
    chunk.num_token_ids = chunk.num_token_ids.value_or(0) + static_cast<uint32_t>(ids->size());
  }
  const json::value* finish = choice.if_contains("finish_reason");
  if (finish != nullptr && finish->is_string()) {
    reason.assign(finish->get_string().data(), finish->get_string().size());
    chunk.finish_reason = reason;
  }
}

}  // namespace

absl::Status ParseChunk(std::string_view text, Chunk& chunk, std::string& reason) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text));
  const json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("not a JSON object");
  if (const json::array* choices = ArrayIn(*object, "choices")) {
    for (const json::value& choice : *choices) {
      if (choice.is_object()) ReadChoice(choice.get_object(), chunk, reason);
    }
  }
  if (const json::object* usage = ObjectIn(*object, "usage")) {
    chunk.usage = Usage{.prompt_tokens = Count(*usage, "prompt_tokens"),
                        .completion_tokens = Count(*usage, "completion_tokens")};
    if (const json::object* details = ObjectIn(*usage, "prompt_tokens_details")) {
      chunk.usage->cached_tokens = Count(*details, "cached_tokens");
    }
  }
  const json::value* error = object->if_contains("error");
  chunk.is_error = error != nullptr && !error->is_null();
  return absl::OkStatus();
}

}  // namespace weightless::loadtest
