#include "common/host_port.h"

#include <charconv>

namespace weightless {

std::optional<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  HostPort result{.host = std::string(text.substr(0, colon))};
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (result.port < 0 || result.port > 65535) return std::nullopt;
  return result;
}

std::string Bracketed(std::string_view host) {
  const bool is_v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return is_v6 ? "[" + std::string(host) + "]" : std::string(host);
}

std::string Unbracketed(std::string_view host) {
  const bool has_both = host.starts_with('[') && host.ends_with(']');
  return std::string(has_both ? host.substr(1, host.size() - 2) : host);
}

bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "localhost" || host == "[::1]" || host == "::1";
}

}  // namespace weightless
