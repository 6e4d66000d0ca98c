// 16 floats in two AVX registers: the same lanes and orders as simd_avx512.h. Only for files
// compiled with AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/dtypes.h"

namespace weightless::kernels {
namespace {

struct SimdAvx2 {
  struct F {
    __m256 low, high;
  };
  struct D {
    __m256d quarter[4];
  };

  static F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void Store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }
  static F Add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F Sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F Mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F Div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F Max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F Min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static F MulAdd(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F NegMulAdd(F a, F b, F c) {
    return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
  }

  static F LoadFirst(const float* p, int64_t n) {
    if (n == 16) return Load(p);
    float lanes[16] = {};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return Load(lanes);
  }
  template <typename T>
  static void StoreFirst(T* p, F x, int64_t n) {
    if (n == 16) return Store(p, x);
    T lanes[16];
    Store(lanes, x);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
  }
  static void Store(BF16* p, F x) {
    const __m256i packed = _mm256_packus_epi32(RoundToBf16(x.low), RoundToBf16(x.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static F Load(const BF16* p) {
    const auto* bits = reinterpret_cast<const __m128i*>(p);
    const auto widen = [](__m128i x) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    };
    return {widen(_mm_loadu_si128(bits)), widen(_mm_loadu_si128(bits + 1))};
  }

  static F RoundToInt(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
  }
  static F ScaleByPowerOf2(F x, F n) {
    const auto scale = [](__m256 value, __m256 power) {
      const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(power), 23);
      return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), exponent));
    };
    return {scale(x.low, n.low), scale(x.high, n.high)};
  }
  static F KeepIfAtLeast(F x, float bound, F value) {
    const __m256 b = _mm256_set1_ps(bound);
    return {_mm256_and_ps(_mm256_cmp_ps(x.low, b, _CMP_GE_OQ), value.low),
            _mm256_and_ps(_mm256_cmp_ps(x.high, b, _CMP_GE_OQ), value.high)};
  }
  static F SelectLanes(F x, int first, int last, F other) {
    const auto select = [&](__m256 a, __m256 b, int offset) {
      const __m256i lane =
          _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(offset));
      const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                              _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(last)));
      return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(outside));
    };
    return {select(x.low, other.low, 0), select(x.high, other.high, 8)};
  }

  static float Sum(F x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  static float Largest(F x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }

  static D ZeroD() {
    const __m256d zero = _mm256_setzero_pd();
    return {{zero, zero, zero, zero}};
  }
  static D AddSquares(D sum, F x) {
    const __m128 parts[4] = {_mm256_castps256_ps128(x.low), _mm256_extractf128_ps(x.low, 1),
                             _mm256_castps256_ps128(x.high), _mm256_extractf128_ps(x.high, 1)};
    for (int i = 0; i < 4; ++i) {
      const __m256d value = _mm256_cvtps_pd(parts[i]);
      sum.quarter[i] = _mm256_fmadd_pd(value, value, sum.quarter[i]);
    }
    return sum;
  }
  static double Sum(D x) {
    alignas(32) double lanes[8];
    _mm256_store_pd(lanes, _mm256_add_pd(x.quarter[0], x.quarter[2]));
    _mm256_store_pd(lanes + 4, _mm256_add_pd(x.quarter[1], x.quarter[3]));
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }

 private:
  // Each 32-bit lane holds the rounded 16 bits.
  static __m256i RoundToBf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_blendv_epi8(sum, _mm256_set1_epi32(0x7fc00000), is_nan);
    return _mm256_srli_epi32(rounded, 16);
  }
};

}  // namespace
}  // namespace weightless::kernels
