#include "router/prefix_hash.h"

#include <bit>
#include <random>

namespace weightless::router {

namespace {

// SipHash-2-4 with 128 bits of output over whole 64-bit words.
class SipHash {
 public:
  SipHash(uint64_t k0, uint64_t k1)
      : v0_(k0 ^ 0x736f6d6570736575),
        v1_(k1 ^ 0x646f72616e646f6d ^ 0xee),
        v2_(k0 ^ 0x6c7967656e657261),
        v3_(k1 ^ 0x7465646279746573) {}

  void Add(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
    ++num_words_;
  }

  PrefixHash Finish() {
    Add(num_words_ * 8 << 56);
    v2_ ^= 0xee;
    const uint64_t low = Squeeze();
    v1_ ^= 0xdd;
    return {.low = low, .high = Squeeze()};
  }

 private:
  void Round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  uint64_t Squeeze() {
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t num_words_ = 0;
};

// Length first, so that no two texts give the same words.
void AddText(SipHash& hash, std::string_view text) {
  hash.Add(text.size());
  uint64_t word = 0;
  int num_bytes = 0;
  for (const char c : text) {
    word = word << 8 | static_cast<unsigned char>(c);
    if (++num_bytes == 8) {
      hash.Add(word);
      word = 0;
      num_bytes = 0;
    }
  }
  if (num_bytes > 0) hash.Add(word);
}

}  // namespace

PrefixHasher PrefixHasher::Random() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  return PrefixHasher(word(), word());
}

PrefixHash PrefixHasher::Root(std::string_view weight_identity, std::string_view cache_salt) const {
  SipHash hash(key_low_, key_high_);
  AddText(hash, weight_identity);
  AddText(hash, cache_salt);
  return hash.Finish();
}

PrefixHash PrefixHasher::Next(const PrefixHash& parent, std::span<const int32_t> tokens) const {
  SipHash hash(key_low_, key_high_);
  hash.Add(parent.low);
  hash.Add(parent.high);
  for (size_t i = 0; i + 1 < tokens.size(); i += 2) {
    hash.Add(uint64_t{static_cast<uint32_t>(tokens[i])} << 32 |
             static_cast<uint32_t>(tokens[i + 1]));
  }
  if (tokens.size() % 2 != 0) hash.Add(static_cast<uint32_t>(tokens.back()));
  return hash.Finish();
}

}  // namespace weightless::router
