// Identities of token prefixes: a chain of 128-bit hashes, one for each full block of a sequence.
// hash(block i) covers every token from position 0 to the end of block i, the weights and the cache
// salt, so equal hashes mean equal K and V. Keyed (SipHash-2-4, 128-bit output; Aumasson and
// Bernstein 2012), so that who sends prompts cannot construct a collision.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace weightless::router {

struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const PrefixHash&, const PrefixHash&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PrefixHash& hash) {
    return H::combine(std::move(h), hash.low, hash.high);
  }
};

// Immutable; thread-safe.
class PrefixHasher {
 public:
  // The key is secret in production (Random) and fixed in tests.
  PrefixHasher(uint64_t key_low, uint64_t key_high) : key_low_(key_low), key_high_(key_high) {}
  static PrefixHasher Random();

  // The head of a chain.
  PrefixHash Root(std::string_view weight_identity, std::string_view cache_salt) const;
  // The hash of the block that follows `parent` and holds `tokens`; every block of a chain has the
  // same number of them.
  PrefixHash Next(const PrefixHash& parent, std::span<const int32_t> tokens) const;

 private:
  uint64_t key_low_;
  uint64_t key_high_;
};

}  // namespace weightless::router
