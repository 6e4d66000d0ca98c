// Every buffer that a step computes in, allocated once for the largest step.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/weights.h"

namespace weightless::worker {

// Rows of logits computed at once. More are done in groups: one row of a 262,144 word vocabulary
// takes 1 MiB.
inline constexpr int kLogitRows = 64;

// The buffers of one layer over the tokens of one step. "act" is the backend's activation type.
struct LayerActivations {
  kernels::TensorView x;          // f32 [num_tokens, hidden_size], the residual stream
  kernels::TensorView normed;     // act [num_tokens, hidden_size]
  kernels::TensorView qkv;        // f32 [num_tokens, (num_heads + 2 num_kv_heads) head_dim]
  kernels::TensorView q;          // act [num_tokens, num_heads head_dim]
  kernels::TensorView attended;   // act [num_tokens, num_heads head_dim]
  kernels::TensorView projected;  // f32 [num_tokens, hidden_size], back in the residual's width
  kernels::TensorView hidden;     // act [num_tokens, intermediate_size]
};

// The buffers of the head over at most kLogitRows rows.
struct HeadActivations {
  kernels::TensorView x;       // f32 [num_rows, hidden_size]
  kernels::TensorView normed;  // act [num_rows, hidden_size]
  kernels::TensorView logits;  // f32 [num_rows, vocab_size]
};

// The backend outlives it.
class Activations {
 public:
  static absl::StatusOr<Activations> Create(const Weights& weights, int max_step_tokens,
                                            kernels::Backend& backend);

  LayerActivations ForLayer(const LayerWeights& layer, int num_tokens) const;
  HeadActivations ForHead(int num_rows) const;
  kernels::TensorView x(int num_tokens) const { return largest_.x.Rows(num_tokens); }

  size_t layer_bytes() const { return layer_bytes_; }
  size_t logit_bytes() const { return logit_bytes_; }

 private:
  Activations() = default;

  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
  LayerActivations largest_;  // for max_step_tokens tokens of the widest layer
  HeadActivations head_;
  size_t layer_bytes_ = 0;
  size_t logit_bytes_ = 0;
};

}  // namespace weightless::worker
