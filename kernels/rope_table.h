// cos and sin of position * w_i for one layer type, made once on the host:
//   w_i = 1 / base^(2i / head_dim) / factor,   angle = position * w_i,   all in float32
//
// Every step is rounded to float32 on purpose: at long positions the float32 product differs from
// the exact angle, and published models were trained with the rounded one. cos and sin stay float32
// also in bfloat16 mode (PyTorch models round them to bfloat16 there), so the only rounding of a
// rotated value is the one into the activation type.
#pragma once

#include <vector>

namespace weightless::kernels {

struct RopeParams {
  int head_dim = 0;
  float base = 10000;  // theta
  float factor = 1;    // linear scaling: divides w
};

// Both [num_positions, head_dim / 2], row-major; row i is position first_position + i.
struct HostRopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
};

HostRopeTable MakeRopeTable(const RopeParams& params, int num_positions, int first_position = 0);

}  // namespace weightless::kernels
