// Products with AVX2 and FMA: 16 output columns are two registers. Bfloat16 panels are widened to
// float32 as they are read (a shift for the even k, a mask for the odd), and their rows of `a` come
// as float32, so products of bfloat16 values are exact.
#pragma once

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/engine.h"

namespace weightless::kernels {
namespace {

// One step of R rows and one panel: adds to sum[r][0 .. 1].
struct WidenedBf16Cells {
  static constexpr int kElementsPerStep = 2;
  static constexpr int kMaxRows = 4;
  template <int R>
  [[gnu::always_inline]] static inline void Step(const float* a, int64_t lda, const uint32_t* cells,
                                                 __m256 (&sum)[R][2]) {
    const auto* p = reinterpret_cast<const __m256i*>(cells);
    const __m256i bits[2] = {_mm256_load_si256(p), _mm256_load_si256(p + 1)};
    const __m256i high_half = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    __m256 even[2];
    __m256 odd[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      even[h] = _mm256_castsi256_ps(_mm256_slli_epi32(bits[h], 16));
      odd[h] = _mm256_castsi256_ps(_mm256_and_si256(bits[h], high_half));
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 x0 = _mm256_broadcast_ss(a + r * lda);
      const __m256 x1 = _mm256_broadcast_ss(a + r * lda + 1);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sum[r][h] = _mm256_fmadd_ps(x0, even[h], sum[r][h]);
        sum[r][h] = _mm256_fmadd_ps(x1, odd[h], sum[r][h]);
      }
    }
  }
};

struct F32PanelCells {
  static constexpr int kElementsPerStep = 1;
  static constexpr int kMaxRows = 6;
  template <int R>
  [[gnu::always_inline]] static inline void Step(const float* a, int64_t lda, const uint32_t* cells,
                                                 __m256 (&sum)[R][2]) {
    const auto* p = reinterpret_cast<const float*>(cells);
    const __m256 b[2] = {_mm256_load_ps(p), _mm256_load_ps(p + 8)};
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * lda);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) sum[r][h] = _mm256_fmadd_ps(x, b[h], sum[r][h]);
    }
  }
};

template <typename Cells>
struct Avx2Engine {
  using Element = float;
  static constexpr int64_t kRowBlock = 60;

  static void Multiply(const Product& m) {
    static constexpr auto kBlocks = Blocks(std::make_integer_sequence<int, int{Cells::kMaxRows}>());
    const int64_t num_blocks = (m.rows + Cells::kMaxRows - 1) / Cells::kMaxRows;
    for (int panel = 0; panel < m.num_panels; ++panel) {
      for (int64_t i = 0; i < num_blocks; ++i) {
        const int64_t begin = m.rows * i / num_blocks;
        const int64_t end = m.rows * (i + 1) / num_blocks;
        kBlocks[static_cast<size_t>(end - begin - 1)](m, begin, panel);
      }
    }
  }

 private:
  using BlockFunction = void (*)(const Product&, int64_t row, int panel);

  template <int... I>
  static constexpr std::array<BlockFunction, sizeof...(I)> Blocks(
      std::integer_sequence<int, I...>) {
    return {&Block<I + 1>...};
  }

  template <int R>
  static void Block(const Product& m, int64_t row, int panel) {
    const float* a = static_cast<const float*>(m.a) + row * m.lda;
    const uint32_t* cells = m.panels[panel];
    float* c = m.c + row * m.ldc + panel * 16;
    __m256 sum[R][2];
    for (int r = 0; r < R; ++r) {
      for (int h = 0; h < 2; ++h) {
        sum[r][h] = m.accumulate ? _mm256_loadu_ps(c + r * m.ldc + h * 8) : _mm256_setzero_ps();
      }
    }
    constexpr int64_t kPrefetchCells = 64 * 16;  // 4 KiB ahead: into the next panel at the end
    for (int64_t s = 0; s < m.steps; ++s, cells += 16, a += Cells::kElementsPerStep) {
      if (m.prefetch && row == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(AddressAfter(cells, kPrefetchCells)),
                     _MM_HINT_T0);
      }
      Cells::template Step<R>(a, m.lda, cells, sum);
    }
    for (int r = 0; r < R; ++r) {
      for (int h = 0; h < 2; ++h) _mm256_storeu_ps(c + r * m.ldc + h * 8, sum[r][h]);
    }
  }
};

}  // namespace
}  // namespace weightless::kernels
