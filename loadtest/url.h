// Where a server is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weightless::loadtest {

struct Url {
  bool is_tls = false;
  std::string host;  // name or address; an IPv6 address without its brackets
  uint16_t port = 0;
  std::string path;  // what precedes "/v1"; empty or begins with '/', never ends with one

  // host:port as the Host header wants it.
  std::string Authority() const;
  std::string ToString() const;
};

// http[s]://host[:port][/path]. A last "/v1" is dropped, so that the base URL of an OpenAI client
// works too. kInvalidArgument names what is wrong.
absl::StatusOr<Url> ParseUrl(std::string_view text);

}  // namespace weightless::loadtest
