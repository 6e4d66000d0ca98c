#include "router/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "common/concat.h"
#include "common/small_file.h"
#include "common/status.h"

namespace weightless::router {
namespace {

constexpr std::string_view kDigestName = "sha256";
constexpr std::string_view kDigestPrefix = "sha256:";

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool IsPrintable(std::string_view key) {
  for (const char c : key) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

}  // namespace

ApiKeys::Digest ApiKeys::Hash(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::optional<ApiKeys::Digest> ApiKeys::ParseDigest(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  if (!std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) return std::nullopt;
  const std::string bytes = absl::HexStringToBytes({hex.data(), hex.size()});
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text, std::string_view file_name) {
  ApiKeys keys;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const size_t colon = line.find(':');
    const bool named = colon != std::string_view::npos;
    const std::string name =
        named ? std::string(Trim(line.substr(0, colon))) : Concat("key", line_number);
    const std::string_view key = named ? Trim(line.substr(colon + 1)) : line;
    const auto bad = [&](std::string_view why) {
      return absl::InvalidArgumentError(Concat(file_name, " line ", line_number, ": ", why));
    };
    if (key.empty() || name.empty()) return bad("expected name:key or a key");
    if (!IsPrintable(key)) return bad("a key holds printable ASCII without blanks only");
    if (name == kDigestName) return bad("a digest needs a name before it: name:sha256:HEX");
    Digest digest = Hash(key);
    if (key.starts_with(kDigestPrefix)) {
      const std::optional<Digest> given = ParseDigest(key.substr(kDigestPrefix.size()));
      if (!given.has_value()) return bad("sha256: is not followed by 64 hexadecimal digits");
      digest = *given;
    }
    for (const Key& other : keys.keys_) {
      if (other.name == name) return bad(Concat("the name ", Quoted(name), " is there twice"));
      if (other.digest == digest) return bad("the same key as in an earlier line");
    }
    keys.keys_.push_back({name, digest});
  }
  if (keys.empty()) return absl::InvalidArgumentError(Concat(file_name, " holds no key"));
  return keys;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  const auto text = ReadSmallFile(path, "API keys");
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        Concat("--api-key-file ", path, ": ", std::string(text.status().message())));
  }
  return Parse(*text, path);
}

absl::StatusOr<std::string> ApiKeys::Authenticate(std::string_view authorization) const {
  if (keys_.empty()) return std::string();
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.empty())
    return absl::UnauthenticatedError("no API key: send Authorization: Bearer KEY");
  if (authorization.size() <= kScheme.size() ||
      !absl::EqualsIgnoreCase(absl::string_view(authorization.data(), kScheme.size()),
                              absl::string_view(kScheme.data(), kScheme.size()))) {
    return absl::UnauthenticatedError("the Authorization header is not of the form Bearer KEY");
  }
  const Digest digest = Hash(Trim(authorization.substr(kScheme.size())));
  size_t match = keys_.size();
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (CRYPTO_memcmp(keys_[i].digest.data(), digest.data(), digest.size()) == 0) match = i;
  }
  if (match == keys_.size()) return absl::UnauthenticatedError("the API key is not valid");
  return keys_[match].name;
}

}  // namespace weightless::router
