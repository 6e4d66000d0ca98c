// Philox 4x32-10, the counter-based generator of Salmon et al. (SC 2011): 128 random bits as a pure
// function of a 128-bit counter and a 64-bit key.
#pragma once

#include <array>
#include <cstdint>

namespace weightless::kernels {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits, for the draw of the token at `position`.
constexpr double UniformAt(int64_t seed, int64_t position) {
  const auto s = static_cast<uint64_t>(seed);
  const auto p = static_cast<uint64_t>(position);
  const PhiloxCounter r =
      Philox4x32({static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, 0},
                 {static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace weightless::kernels
