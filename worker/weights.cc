#include "worker/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "kernels/rope_table.h"

namespace weightless::worker {

using kernels::Buffer;
using kernels::DType;
using kernels::TensorView;
using model::LayerConfig;
using model::LayerType;

constexpr int kRopeStretch = 512;  // positions on the host at a time: some 512 KiB a table

class WeightLoader {
 public:
  WeightLoader(const model::Checkpoint& checkpoint, WeightKind& kind, kernels::Backend& backend,
               const LoadProgress& progress)
      : config_(checkpoint.config()), kind_(kind), reader_(checkpoint, backend, progress) {}

  absl::StatusOr<Weights> Load(int max_length) {
    const float root = std::sqrt(static_cast<float>(config_.hidden_size));
    weights_.embedding_scale_ = reader_.backend().activation_type() == DType::kBF16
                                    ? kernels::ToFloat(kernels::ToBF16(root))
                                    : root;
    weights_.norm_eps_ = static_cast<float>(config_.norm_eps);
    ASSIGN_OR_RETURN(weights_.embedding_, kind_.Load(MatrixRole::kEmbedding, 0, reader_));
    if (!config_.tied_head) {
      ASSIGN_OR_RETURN(weights_.head_, kind_.Load(MatrixRole::kHead, 0, reader_));
    }
    ASSIGN_OR_RETURN(weights_.final_norm_, Norm("norm.weight"));
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      ASSIGN_OR_RETURN(LayerWeights layer, Layer(i, max_length));
      weights_.layers_.push_back(std::move(layer));
    }
    weights_.memory_ = reader_.memory();
    return std::move(weights_);
  }

 private:
  absl::StatusOr<LayerWeights> Layer(size_t layer_idx, int max_length) {
    const LayerConfig& config = config_.layers[layer_idx];
    const std::string prefix = Concat("layers.", layer_idx, ".");
    const std::string attention = prefix + "self_attn.";
    LayerWeights w;
    w.sliding = config.type == LayerType::kSliding;
    w.attention = {.num_heads = config.num_heads,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .window = w.sliding ? config_.sliding_window : 0,
                   .scale = static_cast<float>(config_.attention_scale)};
    ASSIGN_OR_RETURN(w.attention_norm, Norm(prefix + "input_layernorm.weight"));
    ASSIGN_OR_RETURN(w.qkv, kind_.Load(MatrixRole::kQkv, layer_idx, reader_));
    ASSIGN_OR_RETURN(w.norm_rope.q_norm, Norm(attention + "q_norm.weight"));
    ASSIGN_OR_RETURN(w.norm_rope.k_norm, Norm(attention + "k_norm.weight"));
    ASSIGN_OR_RETURN(w.norm_rope.rope, Rope(config, max_length));
    w.norm_rope.eps = weights_.norm_eps_;
    ASSIGN_OR_RETURN(w.attention_out, kind_.Load(MatrixRole::kAttentionOut, layer_idx, reader_));
    ASSIGN_OR_RETURN(w.post_attention_norm, Norm(prefix + "post_attention_layernorm.weight"));
    ASSIGN_OR_RETURN(w.mlp_norm, Norm(prefix + "pre_feedforward_layernorm.weight"));
    ASSIGN_OR_RETURN(w.gate_up, kind_.Load(MatrixRole::kGateUp, layer_idx, reader_));
    ASSIGN_OR_RETURN(w.down, kind_.Load(MatrixRole::kDown, layer_idx, reader_));
    ASSIGN_OR_RETURN(w.post_mlp_norm, Norm(prefix + "post_feedforward_layernorm.weight"));
    return w;
  }

  // The factor itself, whichever way the checkpoint stores it.
  absl::StatusOr<TensorView> Norm(const std::string& name) {
    const model::Tensor& tensor = reader_.Tensor(name);
    std::vector<float> factors(static_cast<size_t>(tensor.row_size()));
    model::ReadRows(tensor, 0, 1, factors.data());
    if (config_.stores_norm_minus_one) {
      for (float& factor : factors) factor += 1.0f;
    }
    reader_.HasRead(tensor);
    return Store(factors, tensor.row_size(), name, "norms");
  }

  // One table for each layer type, made by stretches of positions: a whole one may be gigabytes.
  absl::StatusOr<kernels::RopeTable> Rope(const LayerConfig& layer, int max_length) {
    const auto key = std::tuple(layer.head_dim, layer.rope_theta, layer.rope_factor);
    const auto found = ropes_.find(key);
    if (found != ropes_.end()) return found->second;
    kernels::RopeTable table;
    ASSIGN_OR_RETURN(table.cos, ReserveRope(layer.head_dim / 2, max_length));
    ASSIGN_OR_RETURN(table.sin, ReserveRope(layer.head_dim / 2, max_length));
    const kernels::RopeParams params{.head_dim = layer.head_dim,
                                     .base = static_cast<float>(layer.rope_theta),
                                     .factor = static_cast<float>(layer.rope_factor)};
    for (int first = 0; first < max_length; first += kRopeStretch) {
      const int count = std::min(kRopeStretch, max_length - first);
      const kernels::HostRopeTable host = kernels::MakeRopeTable(params, count, first);
      UploadRows(host.cos, table.cos, first);
      UploadRows(host.sin, table.sin, first);
    }
    ropes_.emplace(key, table);
    return table;
  }

  absl::StatusOr<TensorView> ReserveRope(int64_t cols, int64_t rows) {
    const size_t size_bytes = static_cast<size_t>(rows * cols) * sizeof(float);
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                     reader_.Allocate(size_bytes, "rotary table", "rope"));
    const TensorView view{buffer->data(), DType::kF32, rows, cols};
    weights_.buffers_.push_back(std::move(buffer));
    return view;
  }

  // Rows from `first` on.
  void UploadRows(const std::vector<float>& rows, const TensorView& view, int64_t first) {
    reader_.backend().Upload(rows.data(), rows.size() * sizeof(float),
                             static_cast<float*>(view.data) + first * view.cols);
  }

  absl::StatusOr<TensorView> Store(const std::vector<float>& values, int64_t cols,
                                   std::string_view name, std::string_view kind) {
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, reader_.Store(values, name, kind));
    const TensorView view{buffer->data(), DType::kF32, static_cast<int64_t>(values.size()) / cols,
                          cols};
    weights_.buffers_.push_back(std::move(buffer));
    return view;
  }

  const model::ModelConfig& config_;
  WeightKind& kind_;
  WeightReader reader_;
  Weights weights_;
  std::map<std::tuple<int, double, double>, kernels::RopeTable> ropes_;
};

absl::StatusOr<Weights> Weights::Load(const model::Checkpoint& checkpoint, WeightKind& kind,
                                      int max_length, kernels::Backend& backend,
                                      const LoadProgress& progress) {
  return WeightLoader(checkpoint, kind, backend, progress).Load(max_length);
}

}  // namespace weightless::worker
