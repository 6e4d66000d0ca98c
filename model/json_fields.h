// Reading tokenizer files: look-ups in JSON objects, with errors that show the value.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "model/vocabulary.h"

namespace weightless::model {

std::string_view View(const boost::json::string& text);
// A short rendering for messages.
std::string ShowJson(const boost::json::value& value);
// The value under `key`, or null where it is absent or JSON's null.
const boost::json::value* FindSet(const boost::json::object& object, std::string_view key);
bool IsString(const boost::json::object& object, std::string_view key, std::string_view expected);
// An error unless the field is absent, null or `expected`.
absl::Status RequireBool(const boost::json::object& object, std::string_view key, bool expected);

// Flags the piece an added-token record describes, or adds it when its id is free: an entry of
// tokenizer.json's added_tokens or of tokenizer_config.json's added_tokens_decoder.
absl::Status ReadAddedToken(int32_t id, const boost::json::object& token, Vocabulary& vocabulary);

}  // namespace weightless::model
