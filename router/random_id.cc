#include "router/random_id.h"

#include <random>

namespace weightless::router {
namespace {

uint64_t RandomBits() {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  return generator();
}

}  // namespace

std::string RandomHexId() {
  constexpr char kHex[] = "0123456789abcdef";
  std::string id;
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = RandomBits();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += kHex[bits & 15];
  }
  return id;
}

int64_t RandomSeed() { return static_cast<int64_t>(RandomBits() >> 11); }

}  // namespace weightless::router
