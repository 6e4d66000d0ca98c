// Built with -O3 -ffp-contract=off (CMakeLists.txt): the inner loops have constant trip counts and
// no branches, so they vectorise; contraction would change the last bit.
//
// Block layouts, byte offsets in brackets; d, m, dmin are fp16, nibble i of qs[16] is the low half
// of qs[i] for i < 16, the high half of qs[i - 16] after that:
//   Q4_0   d[0] qs[2]                        d * (n - 8)
//   Q4_1   d[0] m[2] qs[4]                   d * n + m
//   Q5_0   d[0] qh[2] qs[6]                  d * ((n | bit i of qh << 4) - 16)
//   Q5_1   d[0] m[2] qh[4] qs[8]             d * (n | bit << 4) + m
//   Q8_0   d[0] int8 qs[2]                   d * q
// and of super-blocks, 8 groups of 32 values or 16 of 16, each with a scale:
//   Q2_K   scales[0] qs[16] d[80] dmin[82]       16: (d * low nibble) * n - dmin * high nibble
//   Q3_K   hmask[0] qs[32] scales[96] d[108]     16: (d * (scale - 32)) * (n - 4)
//   Q4_K   d[0] dmin[2] scales[4] qs[16]          8: (d * scale) * n - dmin * min
//   Q5_K   d[0] dmin[2] scales[4] qh[16] qs[48]   8: (d * scale) * n - dmin * min
//   Q6_K   ql[0] qh[128] scales[192] d[208]      16: (d * scale) * (n - 32)
#include "model/quant_blocks.h"

#include <array>
#include <bit>
#include <cstring>
#include <iterator>

#include "common/check.h"

namespace weightless::model {
namespace {

constexpr int kSmallBlock = 32;
constexpr int kSuperBlock = 256;

using Bytes = const uint8_t*;

uint16_t LoadU16(Bytes p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

// Exact for every fp16 value; integer arithmetic, so denormals need no floating-point mode.
float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  const uint32_t denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x400u ? denormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

float LoadHalf(Bytes p) { return HalfToFloat(LoadU16(p)); }

void ExpandF32(Bytes in, int64_t n, float* __restrict out) {
  std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
}

void ExpandF16(Bytes in, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = LoadHalf(in + 2 * i);
}

void ExpandBF16(Bytes in, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(LoadU16(in + 2 * i)) << 16);
  }
}

void ExpandQ4_0(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  Bytes qs = in + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((qs[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((qs[i] >> 4) - 8);
  }
}

void ExpandQ4_1(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  const float m = LoadHalf(in + 2);
  Bytes qs = in + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(qs[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(qs[i] >> 4) + m;
  }
}

// The fifth bits of 32 values, each already in place (0 or 16).
std::array<uint8_t, kSmallBlock> FifthBits(Bytes qh) {
  std::array<uint8_t, kSmallBlock> bits;
  for (int i = 0; i < kSmallBlock; ++i) {
    bits[static_cast<size_t>(i)] = static_cast<uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
  }
  return bits;
}

void ExpandQ5_0(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  const auto high = FifthBits(in + 2);
  Bytes qs = in + 6;
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((qs[i] & 15) | high[i]) - 16);
    out[i + 16] = d * static_cast<float>(((qs[i] >> 4) | high[i + 16]) - 16);
  }
}

void ExpandQ5_1(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  const float m = LoadHalf(in + 2);
  const auto high = FifthBits(in + 4);
  Bytes qs = in + 8;
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((qs[i] & 15) | high[i]) + m;
    out[i + 16] = d * static_cast<float>((qs[i] >> 4) | high[i + 16]) + m;
  }
}

void ExpandQ8_0(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  Bytes qs = in + 2;
  for (int i = 0; i < kSmallBlock; ++i) {
    out[i] = d * static_cast<float>(static_cast<int8_t>(qs[i]));
  }
}

void ExpandQ2_K(Bytes in, float* __restrict out) {
  Bytes scales = in;
  const float d = LoadHalf(in + 80);
  const float dmin = LoadHalf(in + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group] & 15);
    const float min = dmin * static_cast<float>(scales[group] >> 4);
    // 128 values share 32 bytes, two bits each; two groups share a shift.
    Bytes qs = in + 16 + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2);
    float* y = out + 16 * group;
    for (int i = 0; i < 16; ++i) y[i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
  }
}

void ExpandQ3_K(Bytes in, float* __restrict out) {
  Bytes packed = in + 96;
  const float d = LoadHalf(in + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (2 * (group / 4))) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    Bytes hmask = in + 16 * (group % 2);
    Bytes qs = in + 32 + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2);
    const int bit = group / 2;
    float* y = out + 16 * group;
    for (int i = 0; i < 16; ++i) {
      const int n = ((qs[i] >> shift) & 3) | (((hmask[i] >> bit) & 1) << 2);
      y[i] = scale * static_cast<float>(n - 4);
    }
  }
}

struct ScaleMin {
  float scale;
  float min;
};

// Sub-block j of 8: a 6-bit scale and a 6-bit minimum out of 12 bytes.
ScaleMin UnpackScaleMin(Bytes s, int j) {
  if (j < 4) return {static_cast<float>(s[j] & 63), static_cast<float>(s[j + 4] & 63)};
  return {static_cast<float>((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4)),
          static_cast<float>((s[j + 4] >> 4) | ((s[j] >> 6) << 4))};
}

void ExpandQ4_K(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  const float dmin = LoadHalf(in + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [sc, mn] = UnpackScaleMin(in + 4, j);
    const float scale = d * sc;
    const float min = dmin * mn;
    Bytes qs = in + 16 + 32 * (j / 2);
    const int shift = 4 * (j % 2);
    float* y = out + 32 * j;
    for (int i = 0; i < 32; ++i) y[i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
  }
}

void ExpandQ5_K(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in);
  const float dmin = LoadHalf(in + 2);
  Bytes qh = in + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [sc, mn] = UnpackScaleMin(in + 4, j);
    const float scale = d * sc;
    const float min = dmin * mn;
    Bytes qs = in + 48 + 32 * (j / 2);
    const int shift = 4 * (j % 2);
    float* y = out + 32 * j;
    for (int i = 0; i < 32; ++i) {
      const int n = ((qs[i] >> shift) & 15) | (((qh[i] >> j) & 1) << 4);
      y[i] = scale * static_cast<float>(n) - min;
    }
  }
}

void ExpandQ6_K(Bytes in, float* __restrict out) {
  const float d = LoadHalf(in + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(in[192 + group]));
    const int half = group / 8;
    const int quarter = group % 8 / 2;  // 32 values: which two bits of qh, which half of ql
    const int offset = 16 * (group % 2);
    Bytes ql = in + 64 * half + 32 * (quarter % 2) + offset;
    Bytes qh = in + 128 + 32 * half + offset;
    const int low_shift = 4 * (quarter / 2);
    const int high_shift = 2 * quarter;
    float* y = out + 16 * group;
    for (int i = 0; i < 16; ++i) {
      const int n = ((ql[i] >> low_shift) & 15) | (((qh[i] >> high_shift) & 3) << 4);
      y[i] = scale * static_cast<float>(n - 32);
    }
  }
}

template <void (*Expand)(Bytes, float* __restrict), int kBlockSize, int kBlockBytes>
void ExpandBlocks(Bytes in, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n / kBlockSize; ++i) Expand(in + i * kBlockBytes, out + i * kBlockSize);
}

struct Format {
  StorageFormat format;
  void (*expand)(Bytes in, int64_t n, float* __restrict out);
};

template <void (*Expand)(Bytes, float* __restrict), int kBlockSize, int kBlockBytes>
constexpr Format Blocks(const char* name) {
  return {{name, kBlockSize, kBlockBytes}, ExpandBlocks<Expand, kBlockSize, kBlockBytes>};
}

// In the order of StorageType.
constexpr Format kFormats[] = {
    {{"F32", 1, 4}, ExpandF32},
    {{"F16", 1, 2}, ExpandF16},
    {{"BF16", 1, 2}, ExpandBF16},
    Blocks<ExpandQ4_0, kSmallBlock, 18>("Q4_0"),
    Blocks<ExpandQ4_1, kSmallBlock, 20>("Q4_1"),
    Blocks<ExpandQ5_0, kSmallBlock, 22>("Q5_0"),
    Blocks<ExpandQ5_1, kSmallBlock, 24>("Q5_1"),
    Blocks<ExpandQ8_0, kSmallBlock, 34>("Q8_0"),
    Blocks<ExpandQ2_K, kSuperBlock, 84>("Q2_K"),
    Blocks<ExpandQ3_K, kSuperBlock, 110>("Q3_K"),
    Blocks<ExpandQ4_K, kSuperBlock, 144>("Q4_K"),
    Blocks<ExpandQ5_K, kSuperBlock, 176>("Q5_K"),
    Blocks<ExpandQ6_K, kSuperBlock, 210>("Q6_K"),
};
static_assert(std::size(kFormats) == static_cast<size_t>(StorageType::kQ6_K) + 1);

}  // namespace

const StorageFormat& FormatOf(StorageType type) {
  return kFormats[static_cast<size_t>(type)].format;
}

void Dequantize(StorageType type, const std::byte* blocks, int64_t num_values, float* out) {
  const Format& format = kFormats[static_cast<size_t>(type)];
  CHECK(num_values % format.format.block_size == 0);
  format.expand(reinterpret_cast<Bytes>(blocks), num_values, out);
}

}  // namespace weightless::model
