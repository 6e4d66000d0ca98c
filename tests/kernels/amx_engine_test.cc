// The AMX engine over tiles in plain C++: its indexing, on processors without AMX.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/engine_amx.h"

namespace weightless::kernels {
namespace {

struct EmulatedTiles {
  struct Tile {
    int rows;
    uint32_t cells[16][16];
  };
  static inline Tile tiles[8];

  static void Configure(int upper, int lower) {
    const int rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int t = 0; t < 8; ++t) tiles[t].rows = rows[t];
  }
  template <int T>
  static void Zero() {
    std::memset(tiles[T].cells, 0, sizeof(tiles[T].cells));
  }
  template <int T>
  static void Load(const void* from, int64_t stride_bytes) {
    for (int r = 0; r < tiles[T].rows; ++r) {
      std::memcpy(tiles[T].cells[r], static_cast<const char*>(from) + r * stride_bytes, 64);
    }
  }
  template <int T>
  static void Store(void* to, int64_t stride_bytes) {
    for (int r = 0; r < tiles[T].rows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride_bytes, tiles[T].cells[r], 64);
    }
  }
  template <int C, int A, int B>
  static void MulAdd() {
    ASSERT_EQ(tiles[C].rows, tiles[A].rows);
    for (int r = 0; r < tiles[C].rows; ++r) {
      for (int n = 0; n < 16; ++n) {
        float sum = std::bit_cast<float>(tiles[C].cells[r][n]);
        for (int k = 0; k < 16; ++k) {
          const uint32_t a = tiles[A].cells[r][k];
          const uint32_t b = tiles[B].cells[k][n];
          sum += std::bit_cast<float>(a << 16) * std::bit_cast<float>(b << 16);
          sum += std::bit_cast<float>(a & 0xffff0000u) * std::bit_cast<float>(b & 0xffff0000u);
        }
        tiles[C].cells[r][n] = std::bit_cast<uint32_t>(sum);
      }
    }
  }
};

using Engine = AmxEngine<EmulatedTiles>;

TEST(AmxEngineTest, MultipliesAnyNumberOfRowsAndPanels) {
  std::mt19937 random(1);
  // Small integers: products and sums are exact, so results must be equal.
  std::uniform_int_distribution<int> integer(-8, 8);
  for (const int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 49, 64, 70}) {
    for (const int num_panels : {1, 2, 3, 4}) {
      for (const int64_t steps : {16, 32, 160}) {
        const int64_t k = 2 * steps;
        std::vector<BF16> a(static_cast<size_t>(rows * k));
        std::vector<BF16> b(static_cast<size_t>(num_panels * steps * 32));
        for (BF16& x : a) x = ToBF16(static_cast<float>(integer(random)));
        for (BF16& x : b) x = ToBF16(static_cast<float>(integer(random)));
        for (const bool accumulate : {false, true}) {
          const int64_t ldc = num_panels * 16 + 16;  // the last 16 columns must stay
          std::vector<float> c(static_cast<size_t>(rows * ldc), 3.0f);
          Product m{.a = a.data(), .lda = k, .rows = rows, .num_panels = num_panels};
          m.steps = steps;
          m.c = c.data();
          m.ldc = ldc;
          m.accumulate = accumulate;
          const auto* cells = reinterpret_cast<const uint32_t*>(b.data());
          for (int p = 0; p < num_panels; ++p) m.panels[p] = cells + p * steps * 16;
          Engine::Multiply(m);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t n = 0; n < ldc; ++n) {
              float expected = accumulate || n >= num_panels * 16 ? 3.0f : 0.0f;
              for (int64_t i = 0; n < num_panels * 16 && i < k; ++i) {
                const int64_t cell = (n / 16 * steps + i / 2) * 16 + n % 16;
                expected += ToFloat(a[static_cast<size_t>(r * k + i)]) *
                            ToFloat(b[static_cast<size_t>(cell * 2 + i % 2)]);
              }
              ASSERT_EQ(c[static_cast<size_t>(r * ldc + n)], expected)
                  << "row " << r << " column " << n << " of " << rows << " x " << num_panels;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weightless::kernels
