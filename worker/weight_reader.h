// The way of weights from a checkpoint into backend memory, with the count of what they take there
// and how far the loading is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "worker/memory_ledger.h"

namespace weightless::worker {

// 0 .. 1 while weights load. Called by the loading thread.
using LoadProgress = std::function<void(double fraction)>;

// For one load. All that it is given outlives it. Errors are kResourceExhausted, naming what did
// not fit.
class WeightReader {
 public:
  WeightReader(const model::Checkpoint& checkpoint, kernels::Backend& backend,
               const LoadProgress& progress);

  const model::Checkpoint& checkpoint() const { return checkpoint_; }
  kernels::Backend& backend() { return backend_; }
  const MemoryLedger& memory() const { return memory_; }

  // CHECK-fails when it is not there: Checkpoint::Open has seen to it.
  const model::Tensor& Tensor(const std::string& name) const;
  // Progress: the tensor has been read.
  void HasRead(const model::Tensor& tensor);
  // `kind` of the ledger takes so many bytes of backend memory, also for what a weight kind packs
  // by other calls of the backend than those below.
  void Took(std::string_view kind, size_t size_bytes) { memory_.Add(kind, size_bytes); }

  // The tensors stacked by rows, as one dense matrix.
  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> PackTensors(
      const std::vector<std::string>& names, std::string_view kind);
  // Likewise, of rows from anywhere; `name` is for messages.
  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> PackRows(
      std::span<const kernels::DenseRows> stacked, std::string_view name, std::string_view kind);
  // Backend memory counted under `kind`; `name` is for messages. Likewise Store, with the values.
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(size_t size_bytes,
                                                            std::string_view name,
                                                            std::string_view kind);
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Store(const std::vector<float>& values,
                                                         std::string_view name,
                                                         std::string_view kind);
  absl::Status NoRoom(std::string_view name) const;

 private:
  const model::Checkpoint& checkpoint_;
  kernels::Backend& backend_;
  const LoadProgress& progress_;
  MemoryLedger memory_;
  size_t bytes_to_read_ = 0;
  size_t bytes_read_ = 0;
};

}  // namespace weightless::worker
