// A checkpoint's tensors as the backend multiplies by them: q, k, v stacked into one matrix, gate
// and up into another, norm factors complete, the rotary tables of every layer type. The form of
// the matrices is the weight kind's.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "worker/memory_ledger.h"
#include "worker/weight_kind.h"
#include "worker/weight_reader.h"

namespace weightless::worker {

struct LayerWeights {
  kernels::TensorView attention_norm;  // f32 [1, hidden_size]
  std::unique_ptr<kernels::LinearWeight>
      qkv;                            // [(num_heads + 2 num_kv_heads) head_dim, hidden_size]
  kernels::NormRopeInputs norm_rope;  // q_norm, k_norm, cos and sin of the layer's type
  kernels::AttentionShape attention;
  bool sliding = false;                                  // which of the two KV pools it uses
  std::unique_ptr<kernels::LinearWeight> attention_out;  // [hidden_size, num_heads head_dim]
  kernels::TensorView post_attention_norm;               // f32 [1, hidden_size]
  kernels::TensorView mlp_norm;                          // f32 [1, hidden_size]
  std::unique_ptr<kernels::LinearWeight> gate_up;  // [2 intermediate_size, hidden_size], gate first
  std::unique_ptr<kernels::LinearWeight> down;     // [hidden_size, intermediate_size]
  kernels::TensorView post_mlp_norm;               // f32 [1, hidden_size]
};

// Immutable after Load. The backend outlives it.
class Weights {
 public:
  // `max_length`: positions the rotary tables cover. kResourceExhausted when the backend has no
  // room, naming what did not fit.
  static absl::StatusOr<Weights> Load(const model::Checkpoint& checkpoint, WeightKind& kind,
                                      int max_length, kernels::Backend& backend,
                                      const LoadProgress& progress);

  const std::vector<LayerWeights>& layers() const { return layers_; }
  // Both [vocab_size, hidden_size].
  const kernels::LinearWeight& embedding() const { return *embedding_; }
  const kernels::LinearWeight& head() const { return head_ ? *head_ : *embedding_; }
  const kernels::TensorView& final_norm() const { return final_norm_; }  // f32 [1, hidden_size]
  // sqrt(hidden_size), rounded to bfloat16 in bfloat16 mode as the published models are run.
  float embedding_scale() const { return embedding_scale_; }
  float norm_eps() const { return norm_eps_; }
  const MemoryLedger& memory() const { return memory_; }

 private:
  friend class WeightLoader;
  Weights() = default;

  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;  // norms and rotary tables
  std::vector<LayerWeights> layers_;
  std::unique_ptr<kernels::LinearWeight> embedding_;
  std::unique_ptr<kernels::LinearWeight> head_;  // null: the embedding
  kernels::TensorView final_norm_;
  float embedding_scale_ = 1;
  float norm_eps_ = 1e-6f;
  MemoryLedger memory_;
};

}  // namespace weightless::worker
