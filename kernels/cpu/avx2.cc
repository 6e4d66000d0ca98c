// The families for processors without AVX-512. Compiled for AVX2 and FMA.
#include "kernels/cpu/engine_avx2.h"
#include "kernels/cpu/family_ops.h"
#include "kernels/cpu/simd_avx2.h"

namespace weightless::kernels {

const CpuOps* Avx2Ops(DType activation_type) {
  static const FamilyOps<SimdAvx2, Avx2Engine<WidenedBf16Cells>, BF16> bf16("cpu-avx2/bfloat16");
  static const FamilyOps<SimdAvx2, Avx2Engine<F32PanelCells>, float> f32("cpu-avx2/float32");
  if (activation_type == DType::kBF16) return &bf16;
  return &f32;
}

}  // namespace weightless::kernels
