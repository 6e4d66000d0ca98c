#include "model/json_fields.h"

#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::model {

namespace json = boost::json;

std::string_view View(const json::string& text) { return {text.data(), text.size()}; }

std::string ShowJson(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::string:
      return Quoted(View(value.get_string()));
    case json::kind::object:
      return "an object";
    case json::kind::array:
      return "an array";
    case json::kind::int64:
      return Concat(value.get_int64());
    default:
      return "a number";
  }
}

const json::value* FindSet(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool IsString(const json::object& object, std::string_view key, std::string_view expected) {
  const json::value* value = FindSet(object, key);
  return value != nullptr && value->is_string() && View(value->get_string()) == expected;
}

absl::Status RequireBool(const json::object& object, std::string_view key, bool expected) {
  const json::value* value = FindSet(object, key);
  if (value == nullptr || (value->is_bool() && value->get_bool() == expected)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(Concat(key, " is ", ShowJson(*value), "; only ",
                                           expected ? "true" : "false", " is supported"));
}

absl::Status ReadAddedToken(int32_t id, const json::object& token, Vocabulary& vocabulary) {
  const json::value* content = FindSet(token, "content");
  if (content == nullptr || !content->is_string()) {
    return absl::InvalidArgumentError("content is not a string");
  }
  for (const std::string_view key : {"single_word", "lstrip", "rstrip", "normalized"}) {
    RETURN_IF_ERROR(RequireBool(token, key, false));
  }
  const json::value* special = FindSet(token, "special");
  if (special == nullptr || !special->is_bool()) {
    return absl::InvalidArgumentError("special is not a boolean");
  }
  const Vocabulary::Flags flags = {.added = true, .special = special->get_bool()};
  const std::string_view piece = View(content->get_string());
  if (!vocabulary.Has(id) || vocabulary.Piece(id) != piece) {
    return vocabulary.Add(id, piece, flags);
  }
  vocabulary.SetFlags(id, flags);
  return absl::OkStatus();
}

}  // namespace weightless::model
