#include "kernels/rope_table.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"

namespace weightless::kernels {

HostRopeTable MakeRopeTable(const RopeParams& params, int num_positions, int first_position) {
  CHECK(params.head_dim > 0 && params.head_dim % 2 == 0 && num_positions >= 0);
  const int half = params.head_dim / 2;
  std::vector<float> w(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(params.head_dim);
    w[static_cast<size_t>(i)] = 1.0f / std::pow(params.base, exponent) / params.factor;
  }
  HostRopeTable table;
  const size_t size = static_cast<size_t>(num_positions) * static_cast<size_t>(half);
  table.cos.reserve(size);
  table.sin.reserve(size);
  for (int i = 0; i < num_positions; ++i) {
    const auto position = static_cast<float>(first_position + i);
    for (const float frequency : w) {
      const float angle = frequency * position;
      table.cos.push_back(std::cos(angle));
      table.sin.push_back(std::sin(angle));
    }
  }
  return table;
}

}  // namespace weightless::kernels
