#include "loadtest/url.h"

#include <algorithm>
#include <charconv>

#include "common/concat.h"
#include "common/host_port.h"

namespace weightless::loadtest {
namespace {

absl::Status BadUrl(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(Concat("URL ", Quoted(text), " ", why));
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool IsPlain(char c) { return c > ' ' && c < 0x7f; }

}  // namespace

std::string Url::Authority() const { return Concat(Bracketed(host), ":", port); }

std::string Url::ToString() const {
  return Concat(is_tls ? "https://" : "http://", Authority(), path);
}

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (!std::all_of(rest.begin(), rest.end(), IsPlain)) return BadUrl(text, "holds a blank");
  if (TakePrefix(rest, "https://")) {
    url.is_tls = true;
  } else if (!TakePrefix(rest, "http://")) {
    return BadUrl(text, "does not begin with http:// or https://");
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  if (path.find_first_of("?#") != std::string_view::npos) {
    return BadUrl(text, "has a query or a fragment");
  }
  url.path = path;

  if (authority.find('@') != std::string_view::npos) {
    return BadUrl(text, "has a user name; keys go by --api-key-file");
  }
  std::string_view port;  // with its colon; empty: the scheme's
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return BadUrl(text, "lacks a ]");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && !port.starts_with(':')) return BadUrl(text, "has text after ]");
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
    if (port.rfind(':') != 0 && !port.empty()) {
      return BadUrl(text, "has several colons; an IPv6 address stands in brackets");
    }
  }
  if (url.host.empty()) return BadUrl(text, "has no host");
  url.port = url.is_tls ? 443 : 80;
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0) {
      return BadUrl(text, "has a port that is not in 1..65535");
    }
  }
  return url;
}

}  // namespace weightless::loadtest
