#include "worker/weight_reader.h"

#include <cstdint>

#include "common/check.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless::worker {

using kernels::Buffer;
using kernels::DenseRows;
using kernels::LinearWeight;

WeightReader::WeightReader(const model::Checkpoint& checkpoint, kernels::Backend& backend,
                           const LoadProgress& progress)
    : checkpoint_(checkpoint), backend_(backend), progress_(progress) {
  for (const auto& [name, tensor] : checkpoint.tensors()) bytes_to_read_ += tensor.data.size();
  if (progress_) progress_(0);
}

const model::Tensor& WeightReader::Tensor(const std::string& name) const {
  const model::Tensor* tensor = checkpoint_.Find(name);
  CHECK(tensor != nullptr);
  return *tensor;
}

void WeightReader::HasRead(const model::Tensor& tensor) {
  bytes_read_ += tensor.data.size();
  if (progress_) {
    progress_(static_cast<double>(bytes_read_) / static_cast<double>(bytes_to_read_));
  }
}

absl::StatusOr<std::unique_ptr<LinearWeight>> WeightReader::PackTensors(
    const std::vector<std::string>& names, std::string_view kind) {
  std::vector<DenseRows> stacked;
  for (const std::string& name : names) {
    const model::Tensor& tensor = Tensor(name);
    stacked.push_back({.n = tensor.num_rows(),
                       .k = tensor.row_size(),
                       .read = [&tensor](int64_t first, int64_t count, float* out) {
                         model::ReadRows(tensor, first, count, out);
                       }});
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LinearWeight> weight, PackRows(stacked, names.front(), kind));
  for (const std::string& name : names) HasRead(Tensor(name));
  return weight;
}

absl::StatusOr<std::unique_ptr<LinearWeight>> WeightReader::PackRows(
    std::span<const DenseRows> stacked, std::string_view name, std::string_view kind) {
  std::unique_ptr<LinearWeight> weight = backend_.PackDense(stacked);
  if (weight == nullptr) return NoRoom(name);
  Took(kind, weight->size_bytes());
  return weight;
}

absl::StatusOr<std::unique_ptr<Buffer>> WeightReader::Allocate(size_t size_bytes,
                                                               std::string_view name,
                                                               std::string_view kind) {
  std::unique_ptr<Buffer> buffer = backend_.Allocate(size_bytes);
  if (buffer == nullptr) return NoRoom(name);
  Took(kind, buffer->size_bytes());
  return buffer;
}

absl::StatusOr<std::unique_ptr<Buffer>> WeightReader::Store(const std::vector<float>& values,
                                                            std::string_view name,
                                                            std::string_view kind) {
  const size_t size_bytes = values.size() * sizeof(float);
  ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, Allocate(size_bytes, name, kind));
  backend_.Upload(values.data(), size_bytes, buffer->data());
  return buffer;
}

absl::Status WeightReader::NoRoom(std::string_view name) const {
  return absl::ResourceExhaustedError(Concat("no device memory for ", name, " after ",
                                             memory_.total(), " bytes of weights, limit ",
                                             backend_.memory_total_bytes(), " bytes"));
}

}  // namespace weightless::worker
