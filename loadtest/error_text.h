// What a server sent that was no answer, fit for a message.
#pragma once

#include <string>
#include <string_view>

#include "loadtest/http_response_parser.h"

namespace weightless::loadtest {

// The first 300 bytes of untrusted text on one line of ASCII; other bytes are escaped.
std::string Excerpt(std::string_view text);

// "HTTP 503: overloaded"; of a redirect where it leads, because none is followed.
std::string RefusalText(const ResponseHead& head, std::string_view body);

}  // namespace weightless::loadtest
