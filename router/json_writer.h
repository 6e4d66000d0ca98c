// JSON text by appending to a string: what every streamed token goes through.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightless::router {

// Appends `text`, which must be valid UTF-8, as a JSON string with its quotes.
void AppendJsonString(std::string& out, std::string_view text);

void AppendJsonInt(std::string& out, int64_t value);

// The shortest decimal that reads back as the same float. What JSON cannot say (infinities, NaN) is
// clamped to +-9999, which is what clients expect for the logarithm of zero.
void AppendJsonFloat(std::string& out, float value);

// The string as a JSON literal, for places that are not hot.
std::string JsonString(std::string_view text);

}  // namespace weightless::router
