// What differs between kinds of weights, all of it: which tensors of a checkpoint make a matrix, in
// which form the backend multiplies by it, where its bytes stand in the ledger, what Describe says.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/worker.pb.h"
#include "worker/weight_reader.h"

namespace weightless::worker {

// The matrices of the forward pass; n and k are said at LayerWeights and Weights.
enum class MatrixRole { kEmbedding, kHead, kQkv, kAttentionOut, kGateUp, kDown };

// One object for each load, on the loading thread; weights may share what they were made from (a
// base for several layers) among them.
class WeightKind {
 public:
  virtual ~WeightKind() = default;

  // Fills in all but the dtype. The mode goes into the weight identity, for the same files give
  // other bits in another mode.
  virtual void Describe(proto::Weights& weights) const = 0;

  // The matrix in a form that the backend's Linear, LinearGeglu (kGateUp) or Embed and Linear
  // (kEmbedding) takes. `layer_idx` is 0 for kEmbedding and kHead. kResourceExhausted naming what
  // did not fit.
  virtual absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> Load(MatrixRole role,
                                                                      size_t layer_idx,
                                                                      WeightReader& reader) = 0;
};

// Every matrix from tensors of its own, as a dense checkpoint holds them.
class DenseWeights final : public WeightKind {
 public:
  void Describe(proto::Weights& weights) const override { weights.set_mode("dense"); }
  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> Load(MatrixRole role, size_t layer_idx,
                                                              WeightReader& reader) override;
};

}  // namespace weightless::worker
