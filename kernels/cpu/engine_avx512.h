// Products with AVX-512: a register holds 16 output columns of one row. Up to 12 rows and 2 panels
// at once (24 accumulators): 14 loads for 24 multiplications, and 128 bytes of panels for 24.
#pragma once

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/engine.h"
#include "kernels/dtypes.h"

namespace weightless::kernels {
namespace {

#ifdef __AVX512BF16__
struct Bf16Cells {
  using Element = BF16;
  static constexpr int kElementsPerCell = 2;
  static __m512 MulAdd(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
};
#endif

struct F32Cells {
  using Element = float;
  static constexpr int kElementsPerCell = 1;
  static __m512 MulAdd(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
};

template <typename Cells>
struct Avx512Engine {
  using Element = typename Cells::Element;
  static constexpr int64_t kRowBlock = 60;  // rows worth computing together while panels are near

  static void Multiply(const Product& m) {
    int first = 0;
    for (; first + 2 <= m.num_panels; first += 2) Rows<2>(m, first);
    if (first < m.num_panels) Rows<1>(m, first);
  }

 private:
  static constexpr int64_t kMaxHeight = 12;
  static constexpr int64_t kPrefetchSteps = 128;  // 8 KiB ahead in each panel

  // One block of rows of a pass over P panels.
  struct Part {
    int64_t row;
    int panel;
    int64_t index;  // of num_blocks blocks of rows
    int64_t num_blocks;
  };
  using BlockFunction = void (*)(const Product&, const Part&);

  // All rows in blocks of nearly equal height.
  template <int P>
  static void Rows(const Product& m, int panel) {
    static constexpr auto kBlocks = Blocks<P>(std::make_integer_sequence<int, int{kMaxHeight}>());
    const int64_t num_blocks = (m.rows + kMaxHeight - 1) / kMaxHeight;
    for (int64_t i = 0; i < num_blocks; ++i) {
      const int64_t begin = m.rows * i / num_blocks;
      const int64_t end = m.rows * (i + 1) / num_blocks;
      kBlocks[static_cast<size_t>(end - begin - 1)](m, {begin, panel, i, num_blocks});
    }
  }

  template <int P, int... I>
  static constexpr std::array<BlockFunction, sizeof...(I)> Blocks(
      std::integer_sequence<int, I...>) {
    return {&Block<I + 1, P>...};
  }

  // sum += a . panels over steps [begin, end). Prefetches ahead[p][s >> kShift].
  template <int R, int P, int kShift>
  [[gnu::always_inline]] static inline void Steps(const int32_t* a, int64_t lda,
                                                  const uint32_t* const* panels,
                                                  const uint32_t* const* ahead, int64_t begin,
                                                  int64_t end, __m512 (&sum)[R][P]) {
    for (int64_t s = begin; s < end; ++s) {
      __m512i b[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        b[p] = _mm512_load_si512(panels[p] + s * 16);
        if constexpr (kShift >= 0) _mm_prefetch(ahead[p] + (s >> kShift) * 16, _MM_HINT_T0);
      }
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512i x = _mm512_set1_epi32(a[r * lda + s]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[r][p] = Cells::MulAdd(sum[r][p], x, b[p]);
      }
    }
  }

  // One block of rows reads the panels at the speed of memory: prefetch a little ahead of itself,
  // and at the end the start of the panels that follow. Several blocks prefetch the following
  // panels, each its share of them, while they compute.
  template <int R, int P>
  static void StreamedSteps(const Product& m, const Part& part, const int32_t* a, int64_t lda,
                            __m512 (&sum)[R][P]) {
    const uint32_t* const* panels = m.panels + part.panel;
    const uint32_t* ahead[P];
    const uint32_t* next[P];
    for (int p = 0; p < P; ++p) {
      const int following = part.panel + P + p;
      next[p] = following < m.num_panels ? m.panels[following] : m.next[following - m.num_panels];
      if (next[p] == nullptr) next[p] = panels[p];
      ahead[p] = panels[p] + kPrefetchSteps * 16;
    }
    if (part.num_blocks == 1) {
      const int64_t near = m.steps > kPrefetchSteps ? m.steps - kPrefetchSteps : 0;
      Steps<R, P, 0>(a, lda, panels, ahead, 0, near, sum);
      for (const uint32_t*& p : next) p -= near * 16;
      Steps<R, P, 0>(a, lda, panels, next, near, m.steps, sum);
    } else if (part.num_blocks < 4) {
      for (const uint32_t*& p : next) p += part.index * (m.steps >> 1) * 16;
      Steps<R, P, 1>(a, lda, panels, next, 0, m.steps, sum);
    } else {
      for (const uint32_t*& p : next) p += part.index * (m.steps >> 2) * 16;
      Steps<R, P, 2>(a, lda, panels, next, 0, m.steps, sum);
    }
  }

  template <int R, int P>
  static void Block(const Product& m, const Part& part) {
    const int64_t lda = m.lda / Cells::kElementsPerCell;
    const int32_t* a = static_cast<const int32_t*>(m.a) + part.row * lda;
    float* c = m.c + part.row * m.ldc + part.panel * 16;
    __m512 sum[R][P];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        sum[r][p] = m.accumulate ? _mm512_loadu_ps(c + r * m.ldc + p * 16) : _mm512_setzero_ps();
      }
    }
    // Enough blocks for the panels to follow from memory in time need no prefetch.
    if (m.prefetch && part.index < 4) {
      StreamedSteps<R, P>(m, part, a, lda, sum);
    } else {
      Steps<R, P, -1>(a, lda, m.panels + part.panel, nullptr, 0, m.steps, sum);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) _mm512_storeu_ps(c + r * m.ldc + p * 16, sum[r][p]);
    }
  }
};

}  // namespace
}  // namespace weightless::kernels
