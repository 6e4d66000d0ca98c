// The family for AVX512-BF16: products of bfloat16 pairs by vdpbf16ps. Compiled for that processor.
#include "kernels/cpu/engine_avx512.h"
#include "kernels/cpu/family_ops.h"
#include "kernels/cpu/simd_avx512.h"

namespace weightless::kernels {

const CpuOps* Avx512Bf16Ops() {
  static const FamilyOps<SimdAvx512, Avx512Engine<Bf16Cells>, BF16> ops("cpu-avx512bf16/bfloat16");
  return &ops;
}

}  // namespace weightless::kernels
