#include "kernels/rope_table.h"

#include <cmath>
#include <cstddef>

#include "common/check.h"

namespace weightless::kernels {

HostRopeTable MakeRopeTable(const RopeParams& params, int max_context) {
  CHECK(params.head_dim > 0 && params.head_dim % 2 == 0 && max_context >= 0);
  const int half = params.head_dim / 2;
  std::vector<float> w(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(params.head_dim);
    w[static_cast<size_t>(i)] = 1.0f / std::pow(params.base, exponent) / params.factor;
  }
  HostRopeTable table;
  const size_t size = static_cast<size_t>(max_context) * static_cast<size_t>(half);
  table.cos.reserve(size);
  table.sin.reserve(size);
  for (int position = 0; position < max_context; ++position) {
    for (const float frequency : w) {
      const float angle = frequency * static_cast<float>(position);
      table.cos.push_back(std::cos(angle));
      table.sin.push_back(std::sin(angle));
    }
  }
  return table;
}

}  // namespace weightless::kernels
