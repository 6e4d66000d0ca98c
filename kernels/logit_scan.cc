#include "kernels/logit_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"

namespace weightless::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef int64_t Long2 __attribute__((vector_size(16)));

// 16 logits; past the end, -infinity.
struct Group {
  Float4 v[4];
};
constexpr size_t kGroup = 16;

Group LoadGroup(std::span<const float> logits, size_t first) {
  Group g;
  if (first + kGroup <= logits.size()) {
    std::memcpy(&g, logits.data() + first, sizeof(g));
  } else {
    float padded[kGroup];
    std::fill(padded, padded + kGroup, kNegativeInfinity);
    std::memcpy(padded, logits.data() + first, (logits.size() - first) * sizeof(float));
    std::memcpy(&g, padded, sizeof(g));
  }
  return g;
}

Float4 Splat(float x) { return Float4{x, x, x, x}; }
Int4 Bits(Float4 x) { return reinterpret_cast<Int4>(x); }
bool Any(Int4 mask) {
  const Long2 halves = reinterpret_cast<Long2>(mask);
  return (halves[0] | halves[1]) != 0;
}
bool AnyAbove(const Group& g, Float4 floor) {
  return Any((g.v[0] > floor) | (g.v[1] > floor) | (g.v[2] > floor) | (g.v[3] > floor));
}
bool AnyFrom(const Group& g, Float4 floor) {
  return Any((g.v[0] >= floor) | (g.v[1] >= floor) | (g.v[2] >= floor) | (g.v[3] >= floor));
}

// e^x for x <= 0: x = n ln 2 + r, a polynomial of degree 6 in r, times 2^n.
Float4 Exp(Float4 x) {
  const Int4 keep = x >= Splat(-87.0f);
  x = reinterpret_cast<Float4>(Bits(x) & keep);  // 0 where it does not matter
  const Float4 shifter = Splat(12582912.0f);     // 1.5 * 2^23: adding it rounds to an integer
  const Float4 shifted = x * Splat(1.44269504f) + shifter;
  const Float4 n = shifted - shifter;
  const Float4 r = (x - n * Splat(0.693145752f)) - n * Splat(1.42860677e-6f);
  Float4 p = Splat(1.0f / 720);
  p = p * r + Splat(1.0f / 120);
  p = p * r + Splat(1.0f / 24);
  p = p * r + Splat(1.0f / 6);
  p = p * r + Splat(0.5f);
  p = p * r + Splat(1.0f);
  p = p * r + Splat(1.0f);
  const Int4 power = (Bits(shifted) - Bits(shifter)) << 23;
  return reinterpret_cast<Float4>((Bits(p) + power) & keep);
}

double SumOf(Float4 a) {
  return (static_cast<double>(a[0]) + static_cast<double>(a[1])) +
         (static_cast<double>(a[2]) + static_cast<double>(a[3]));
}

}  // namespace

float MaxLogit(std::span<const float> logits) {
  CHECK(!logits.empty());
  Float4 max[4];
  std::fill(max, max + 4, Splat(kNegativeInfinity));
  Int4 bad = {};
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    const Group g = LoadGroup(logits, i);
    for (int j = 0; j < 4; ++j) {
      max[j] = g.v[j] > max[j] ? g.v[j] : max[j];
      bad |= g.v[j] != g.v[j];
    }
  }
  float result = kNegativeInfinity;
  for (const Float4& m : max) {
    for (int lane = 0; lane < 4; ++lane) result = std::max(result, m[lane]);
  }
  const bool is_valid = !Any(bad) && result < std::numeric_limits<float>::infinity();
  CHECK(is_valid);
  return result;
}

int32_t ArgMax(std::span<const float> logits) {
  const Float4 max = Splat(MaxLogit(logits));
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    if (!AnyFrom(LoadGroup(logits, i), max)) continue;
    while (logits[i] != max[0]) ++i;
    return static_cast<int32_t>(i);
  }
  CHECK(false);
}

float Weight(float logit, float max, float temperature) {
  return Exp(Splat((logit - max) / temperature))[0];
}

void WeighCandidates(std::vector<Candidate>& candidates, float max, float temperature) {
  for (size_t i = 0; i < candidates.size(); i += 4) {
    Float4 logits = Splat(max);
    const size_t count = std::min<size_t>(4, candidates.size() - i);
    for (size_t j = 0; j < count; ++j) logits[j] = candidates[i + j].logit;
    const Float4 weights = Exp((logits - Splat(max)) / Splat(temperature));
    for (size_t j = 0; j < count; ++j) candidates[i + j].weight = weights[j];
  }
}

void SumWeights(std::span<const float> logits, float max, float temperature,
                std::vector<double>& chunk_sums) {
  chunk_sums.clear();
  for (size_t first = 0; first < logits.size(); first += kSumChunk) {
    const auto chunk = logits.subspan(first, std::min(kSumChunk, logits.size() - first));
    Float4 sum[4] = {};
    for (size_t i = 0; i < chunk.size(); i += kGroup) {
      const Group g = LoadGroup(chunk, i);
      for (int j = 0; j < 4; ++j) sum[j] += Exp((g.v[j] - Splat(max)) / Splat(temperature));
    }
    chunk_sums.push_back((SumOf(sum[0]) + SumOf(sum[1])) + (SumOf(sum[2]) + SumOf(sum[3])));
  }
}

void GatherAbove(std::span<const float> logits, float floor, bool inclusive,
                 std::vector<Candidate>& out) {
  const Float4 bound = Splat(floor);
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    const Group g = LoadGroup(logits, i);
    if (!(inclusive ? AnyFrom(g, bound) : AnyAbove(g, bound))) continue;
    for (size_t j = i; j < std::min(i + kGroup, logits.size()); ++j) {
      if (logits[j] > floor || (inclusive && logits[j] == floor)) {
        out.push_back({.logit = logits[j], .id = static_cast<int32_t>(j)});
      }
    }
  }
}

void SelectTop(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  out.clear();
  const auto keep_best = [&] {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k - 1), out.end(),
                     Before);
    out.resize(k);
  };
  float floor = kNegativeInfinity;  // the k-th so far; a later equal one has a larger id and loses
  const size_t capacity = 2 * k + 64;
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    if (!AnyAbove(LoadGroup(logits, i), Splat(floor))) continue;
    for (size_t j = i; j < std::min(i + kGroup, logits.size()); ++j) {
      if (logits[j] > floor) out.push_back({.logit = logits[j], .id = static_cast<int32_t>(j)});
    }
    if (out.size() >= capacity) {
      keep_best();
      floor = out[k - 1].logit;
    }
  }
  if (out.size() > k) keep_best();
}

int32_t CountBefore(std::span<const float> logits, const Candidate& c) {
  const Float4 value = Splat(c.logit);
  Int4 above = {};
  int32_t count = 0;
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    const Group g = LoadGroup(logits, i);
    for (const Float4& v : g.v) above -= v > value;  // a true lane is -1
    if (i >= static_cast<size_t>(c.id)) continue;
    const Int4 equal =
        (g.v[0] == value) | (g.v[1] == value) | (g.v[2] == value) | (g.v[3] == value);
    if (!Any(equal)) continue;
    for (size_t j = i; j < std::min(i + kGroup, static_cast<size_t>(c.id)); ++j) {
      count += logits[j] == c.logit ? 1 : 0;
    }
  }
  return count + above[0] + above[1] + above[2] + above[3];
}

}  // namespace weightless::kernels
