// Bearer keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::router {

// Immutable; thread-safe. Keeps SHA-256 digests, never the keys.
class ApiKeys {
 public:
  // One key a line: `name:key`; `name:sha256:HEX`, the digest of a key that the file does not tell;
  // or a key alone, which is then called "key1", "key2", ... by its line. Blank lines and lines
  // that begin with # do not count. kInvalidArgument names file and line: an empty or doubled key,
  // a doubled name, a key with blanks, a broken digest; also a file without any key.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text, std::string_view file_name);
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // No keys: every caller is welcome and is called "".
  ApiKeys() = default;

  bool empty() const { return keys_.empty(); }

  // The name of the key in an Authorization header ("Bearer KEY"). kUnauthenticated otherwise.
  // Takes the same time whichever key matches, or none.
  absl::StatusOr<std::string> Authenticate(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    std::string name;
    Digest digest;
  };
  static Digest Hash(std::string_view key);
  // Of 64 hexadecimal digits.
  static std::optional<Digest> ParseDigest(std::string_view hex);

  std::vector<Key> keys_;
};

}  // namespace weightless::router
