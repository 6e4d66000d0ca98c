// Products with AMX tiles: 16 bfloat16 steps of a panel are one tile as they lie in memory. Up to
// 32 rows and 2 panels at once:
//
//            panel 0   panel 1
//   rows 0+    c0        c1       a4
//   rows 16+   c2        c3       a5
//              b6        b7
//
// Up to 16 rows take four panels at once instead: their time is that of reading the panels, and a
// core reads four streams faster than one or two (docs/performance.md).
//
//            panel 0   panel 1   panel 2   panel 3
//   rows 0+    c0        c1        c2        c3       a4
//              b6        b7        b6        b7
//
// A block of fewer rows uses tiles of fewer rows; a row's arithmetic is the same in any of them.
// `Tiles` is the instruction set (kernels/cpu/amx.cc) or its emulation in tests.
#pragma once

#include "kernels/cpu/engine.h"
#include "kernels/dtypes.h"

namespace weightless::kernels {
namespace {

template <typename Tiles>
struct AmxEngine {
  using Element = BF16;
  static constexpr int64_t kRowBlock = 64;

  static void Multiply(const Product& m) {
    if (m.rows <= kTileRows && m.num_panels == 4) return FourPanels(m);
    for (int panel = 0; panel < m.num_panels; panel += 2) {
      const bool pair = panel + 1 < m.num_panels;
      for (int64_t row = 0; row < m.rows; row += 2 * kTileRows) {
        const int64_t left = m.rows - row;
        const int upper = static_cast<int>(left < kTileRows ? left : kTileRows);
        const int64_t below = left - upper;
        const int lower = static_cast<int>(below < kTileRows ? below : kTileRows);
        Tiles::Configure(upper, lower);
        if (lower > 0) {
          pair ? Block<true, true>(m, row, panel) : Block<true, false>(m, row, panel);
        } else {
          pair ? Block<false, true>(m, row, panel) : Block<false, false>(m, row, panel);
        }
      }
    }
  }

 private:
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kStepCells = 16;
  static constexpr int64_t kTileCells = 256;    // cells of a panel in one tile
  static constexpr int64_t kTileElements = 32;  // bfloat16 of a row of `a` in one tile
  static constexpr int64_t kPrefetchCells = 1024;
  static constexpr int64_t kAheadSteps = 32;  // with four panels: 2 KiB of each

  static void FourPanels(const Product& m) {
    Tiles::Configure(static_cast<int>(m.rows), static_cast<int>(m.rows));
    Begin<true, true>(m, m.c, m.c + 32);
    const Element* a = static_cast<const Element*>(m.a);
    for (int64_t s = 0; s < m.steps; s += kTileRows, a += kTileElements) {
      Tiles::template Load<4>(a, m.lda * 2);
      OnePanel<0, 6>(m, s);
      OnePanel<1, 7>(m, s);
      OnePanel<2, 6>(m, s);
      OnePanel<3, 7>(m, s);
    }
    End<true, true>(m, m.c, m.c + 32);
  }

  // cP += a4 . bB over one tile of panel P, and the prefetch of a later tile.
  template <int P, int B>
  static void OnePanel(const Product& m, int64_t s) {
    if (m.prefetch) {
      const int64_t later = s + kAheadSteps;
      if (later < m.steps) {
        PrefetchTile(m.panels[P], later);
      } else if (m.next[P] != nullptr) {
        PrefetchTile(m.next[P], later - m.steps);
      }
    }
    Tiles::template Load<B>(m.panels[P] + s * kStepCells, 64);
    Tiles::template MulAdd<P, 4, B>();
  }

  static void PrefetchTile(const uint32_t* panel, int64_t step) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      __builtin_prefetch(
          reinterpret_cast<const void*>(AddressAfter(panel, (step + i) * kStepCells)));
    }
  }

  template <bool kLower, bool kPair>
  static void Block(const Product& m, int64_t row, int panel) {
    float* c = m.c + row * m.ldc + panel * 16;
    float* c_lower = c + kTileRows * m.ldc;
    Begin<kLower, kPair>(m, c, c_lower);
    const Element* a = static_cast<const Element*>(m.a) + row * m.lda;
    const uint32_t* b0 = m.panels[panel];
    const uint32_t* b1 = kPair ? m.panels[panel + 1] : nullptr;
    for (int64_t s = 0; s < m.steps; s += kTileRows) {
      if (m.prefetch && row == 0) Prefetch<kPair>(b0, b1);
      Tiles::template Load<6>(b0, 64);
      Tiles::template Load<4>(a, m.lda * 2);
      Tiles::template MulAdd<0, 4, 6>();
      if constexpr (kPair) {
        Tiles::template Load<7>(b1, 64);
        Tiles::template MulAdd<1, 4, 7>();
        b1 += kTileCells;
      }
      if constexpr (kLower) {
        Tiles::template Load<5>(a + kTileRows * m.lda, m.lda * 2);
        Tiles::template MulAdd<2, 5, 6>();
        if constexpr (kPair) Tiles::template MulAdd<3, 5, 7>();
      }
      a += kTileElements;
      b0 += kTileCells;
    }
    End<kLower, kPair>(m, c, c_lower);
  }

  template <bool kLower, bool kPair>
  static void Begin(const Product& m, float* c, float* c_lower) {
    if (m.accumulate) {
      Tiles::template Load<0>(c, m.ldc * 4);
      if constexpr (kPair) Tiles::template Load<1>(c + 16, m.ldc * 4);
      if constexpr (kLower) Tiles::template Load<2>(c_lower, m.ldc * 4);
      if constexpr (kLower && kPair) Tiles::template Load<3>(c_lower + 16, m.ldc * 4);
    } else {
      Tiles::template Zero<0>();
      if constexpr (kPair) Tiles::template Zero<1>();
      if constexpr (kLower) Tiles::template Zero<2>();
      if constexpr (kLower && kPair) Tiles::template Zero<3>();
    }
  }

  template <bool kLower, bool kPair>
  static void End(const Product& m, float* c, float* c_lower) {
    Tiles::template Store<0>(c, m.ldc * 4);
    if constexpr (kPair) Tiles::template Store<1>(c + 16, m.ldc * 4);
    if constexpr (kLower) Tiles::template Store<2>(c_lower, m.ldc * 4);
    if constexpr (kLower && kPair) Tiles::template Store<3>(c_lower + 16, m.ldc * 4);
  }

  template <bool kPair>
  static void Prefetch(const uint32_t* b0, const uint32_t* b1) {
    for (int64_t i = 0; i < kTileCells; i += 16) {
      __builtin_prefetch(reinterpret_cast<const void*>(AddressAfter(b0, kPrefetchCells + i)));
      if constexpr (kPair) {
        __builtin_prefetch(reinterpret_cast<const void*>(AddressAfter(b1, kPrefetchCells + i)));
      }
    }
  }
};

}  // namespace
}  // namespace weightless::kernels
