// The family for AMX tiles (with AVX512-BF16 for everything else). Compiled for that processor.
#include <immintrin.h>

#include "kernels/cpu/engine_amx.h"
#include "kernels/cpu/family_ops.h"
#include "kernels/cpu/simd_avx512.h"

namespace weightless::kernels {
namespace {

// Palette 1 of the architecture: up to 8 tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct AmxTiles {
  // Tiles of `upper` rows (c0, c1, a4), of `lower` rows (c2, c3, a5), and of 16 rows (b6, b7).
  static void Configure(int upper, int lower) {
    thread_local int configured = 0;
    const int wanted = upper * 32 + lower;
    if (configured == wanted) return;
    configured = wanted;
    const int tile_rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = tile_rows[t] > 0 ? 64 : 0;
      config.rows[t] = static_cast<uint8_t>(tile_rows[t]);
    }
    _tile_loadconfig(&config);
  }
  // In assembly: the compiler's intrinsics take no template argument as a tile's name, and do not
  // tell the compiler that they read and write memory.
  template <int T>
  static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  static void Load(const void* from, int64_t stride_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride_bytes), "i"(T)
                     : "memory");
  }
  template <int T>
  static void Store(void* to, int64_t stride_bytes) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride_bytes), "i"(T)
                     : "memory");
  }
  // c += a . b
  template <int C, int A, int B>
  static void MulAdd() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};

}  // namespace

const CpuOps* AmxOps() {
  static const FamilyOps<SimdAvx512, AmxEngine<AmxTiles>, BF16> ops("cpu-amx/bfloat16");
  return &ops;
}

}  // namespace weightless::kernels
