// Random numbers that are the same on every machine for one seed: the standard's distributions are
// not.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace weightless::loadtest {

// splitmix64 (Steele, Lea and Flood 2014). Cheap to seed, so that every request index can have a
// stream of its own.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  Random(uint64_t seed, uint64_t stream) : state_(seed) { state_ = Next() ^ (stream * kGolden); }

  uint64_t Next() {
    state_ += kGolden;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }

  // In [0, limit); limit > 0.
  uint64_t Below(uint64_t limit) {
    return static_cast<uint64_t>(Uniform() * static_cast<double>(limit));
  }

  // In [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }

  // Mean 1.
  double Exponential() { return -std::log(Uniform()); }

  double Normal() {
    const double radius = std::sqrt(2 * Exponential());
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

  // Shape > 0, scale 1 (Marsaglia and Tsang 2000; for shape < 1 by one power of a uniform).
  double Gamma(double shape) {
    if (shape < 1) return Gamma(shape + 1) * std::pow(Uniform(), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(Uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  uint64_t state_;
};

}  // namespace weightless::loadtest
