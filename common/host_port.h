// "host:port" as flags and addresses have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weightless {

struct HostPort {
  std::string host;  // never empty; an IPv6 address keeps its brackets
  int port = 0;      // 0 .. 65535; whether 0 makes sense is the caller's to say
};

// The port follows the last colon. Nothing when there is no host, or no such port in plain digits.
std::optional<HostPort> ParseHostPort(std::string_view text);

// An IPv6 address with its brackets, as before ":port"; any other host as it is.
std::string Bracketed(std::string_view host);
// The host as a resolver takes it, without brackets.
std::string Unbracketed(std::string_view host);

// Whether only this machine reaches a listener on `host`. A name other than localhost counts as
// reachable.
bool IsLoopback(std::string_view host);

}  // namespace weightless
