// Float32 mode on AVX-512. Compiled for AVX-512 F, BW, DQ, VL.
#include "kernels/cpu/engine_avx512.h"
#include "kernels/cpu/family_ops.h"
#include "kernels/cpu/simd_avx512.h"

namespace weightless::kernels {

const CpuOps* Avx512F32Ops() {
  static const FamilyOps<SimdAvx512, Avx512Engine<F32Cells>, float> ops("cpu-avx512/float32");
  return &ops;
}

}  // namespace weightless::kernels
