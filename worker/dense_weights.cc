#include <string>
#include <vector>

#include "common/concat.h"
#include "worker/weight_kind.h"

namespace weightless::worker {
namespace {

// The tensors that are stacked to the matrix.
std::vector<std::string> TensorNames(MatrixRole role, size_t layer_idx) {
  const std::string attention = Concat("layers.", layer_idx, ".self_attn.");
  const std::string mlp = Concat("layers.", layer_idx, ".mlp.");
  switch (role) {
    case MatrixRole::kEmbedding:
      return {"embed_tokens.weight"};
    case MatrixRole::kHead:
      return {"lm_head.weight"};
    case MatrixRole::kQkv:
      return {attention + "q_proj.weight", attention + "k_proj.weight",
              attention + "v_proj.weight"};
    case MatrixRole::kAttentionOut:
      return {attention + "o_proj.weight"};
    case MatrixRole::kGateUp:
      return {mlp + "gate_proj.weight", mlp + "up_proj.weight"};
    case MatrixRole::kDown:
      return {mlp + "down_proj.weight"};
  }
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> DenseWeights::Load(MatrixRole role,
                                                                          size_t layer_idx,
                                                                          WeightReader& reader) {
  const bool is_vocabulary = role == MatrixRole::kEmbedding || role == MatrixRole::kHead;
  return reader.PackTensors(TensorNames(role, layer_idx), is_vocabulary ? "embedding" : "weights");
}

}  // namespace weightless::worker
