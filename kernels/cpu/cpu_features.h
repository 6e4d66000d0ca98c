// What this processor, and the system on it, lets us use.
#pragma once

namespace weightless::kernels {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // on top of avx512
  bool amx_bf16 = false;     // on top of avx512_bf16; tile data may be used by this process
};

// The first call asks the system for permission to use AMX tile data.
const CpuFeatures& ThisCpu();

}  // namespace weightless::kernels
