// 16 floats in one AVX-512 register. Only for files compiled with AVX-512 F, BW, DQ, VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/dtypes.h"

namespace weightless::kernels {
namespace {  // one copy for each kernel family: each is compiled for another processor

struct SimdAvx512 {
  using F = __m512;
  struct D {  // 16 doubles
    __m512d low, high;
  };

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F NegMulAdd(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }

  // The first n <= 16 lanes; the others load as 0 and are not stored.
  static F LoadFirst(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(First(n), p); }
  static void StoreFirst(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, First(n), x); }
  static void StoreFirst(BF16* p, F x, int64_t n) {
    _mm256_mask_storeu_epi16(p, First(n), RoundToBf16(x));
  }
  static void Store(BF16* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundToBf16(x));
  }
  static F Load(const BF16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  static F RoundToInt(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // x * 2^n; n is an integer in [-126, 127].
  static F ScaleByPowerOf2(F x, F n) { return _mm512_scalef_ps(x, n); }
  // value where x >= bound, else 0.
  static F KeepIfAtLeast(F x, float bound, F value) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, Set1(bound), _CMP_GE_OQ), value);
  }
  // x in lanes first .. last, other elsewhere; bounds may lie outside of 0 .. 15.
  static F SelectLanes(F x, int first, int last, F other) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 mask = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(first)) &
                           _mm512_cmple_epi32_mask(lane, _mm512_set1_epi32(last));
    return _mm512_mask_mov_ps(other, mask, x);
  }

  // Lanes i and i + 8, then i + 4, i + 2, i + 1.
  static float Sum(F x) {
    return Sum8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
  }
  static float Largest(F x) { return _mm512_reduce_max_ps(x); }

  static D ZeroD() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
  static D AddSquares(D sum, F x) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    return {_mm512_fmadd_pd(low, low, sum.low), _mm512_fmadd_pd(high, high, sum.high)};
  }
  static double Sum(D x) {
    alignas(64) double lanes[8];
    _mm512_store_pd(lanes, _mm512_add_pd(x.low, x.high));
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }

 private:
  static __mmask16 First(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  static __m256i RoundToBf16(F x) {
#ifdef __AVX512BF16__
    return (__m256i)_mm512_cvtneps_pbh(x);
#else
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
#endif
  }
  static float Sum8(__m256 x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
};

}  // namespace
}  // namespace weightless::kernels
