#include "model/tensor.h"

#include "common/check.h"

namespace weightless::model {

void ReadRows(const Tensor& tensor, int64_t first, int64_t count, float* out) {
  CHECK(first >= 0 && count >= 0 && first <= tensor.num_rows() - count);
  if (count == 0) return;
  const StorageFormat& format = FormatOf(tensor.type);
  const int64_t row_bytes = tensor.row_size() / format.block_size * format.block_bytes;
  Dequantize(tensor.type, tensor.data.data() + first * row_bytes, count * tensor.row_size(), out);
}

}  // namespace weightless::model
