#include "worker/weights.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/concat.h"
#include "common/status.h"
#include "kernels/rope_table.h"

namespace weightless::worker {

using kernels::Buffer;
using kernels::DenseRows;
using kernels::DType;
using kernels::LinearWeight;
using kernels::TensorView;
using model::LayerConfig;
using model::LayerType;
using model::Tensor;

class WeightLoader {
 public:
  WeightLoader(const model::Checkpoint& checkpoint, kernels::Backend& backend,
               const LoadProgress& progress)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress) {
    for (const auto& [name, tensor] : checkpoint.tensors()) bytes_to_read_ += tensor.data.size();
    if (progress_) progress_(0);
  }

  absl::StatusOr<Weights> Load(int max_length) {
    const model::ModelConfig& config = checkpoint_.config();
    const float root = std::sqrt(static_cast<float>(config.hidden_size));
    weights_.embedding_scale_ =
        backend_.activation_type() == DType::kBF16 ? kernels::ToFloat(kernels::ToBF16(root)) : root;
    weights_.norm_eps_ = static_cast<float>(config.norm_eps);
    ASSIGN_OR_RETURN(weights_.embedding_,
                     Matrix({"embed_tokens.weight"}, weights_.bytes_.embedding));
    if (!config.tied_head) {
      ASSIGN_OR_RETURN(weights_.head_, Matrix({"lm_head.weight"}, weights_.bytes_.embedding));
    }
    ASSIGN_OR_RETURN(weights_.final_norm_, Norm("norm.weight"));
    for (size_t i = 0; i < config.layers.size(); ++i) {
      ASSIGN_OR_RETURN(LayerWeights layer, Layer(i, max_length));
      weights_.layers_.push_back(std::move(layer));
    }
    return std::move(weights_);
  }

 private:
  absl::StatusOr<LayerWeights> Layer(size_t layer_idx, int max_length) {
    const LayerConfig& config = checkpoint_.config().layers[layer_idx];
    const std::string prefix = Concat("layers.", layer_idx, ".");
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    size_t& projections = weights_.bytes_.projections;
    LayerWeights w;
    w.sliding = config.type == LayerType::kSliding;
    w.attention = {.num_heads = config.num_heads,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .window = w.sliding ? checkpoint_.config().sliding_window : 0,
                   .scale = static_cast<float>(checkpoint_.config().attention_scale)};
    ASSIGN_OR_RETURN(w.attention_norm, Norm(prefix + "input_layernorm.weight"));
    ASSIGN_OR_RETURN(w.qkv, Matrix({attention + "q_proj.weight", attention + "k_proj.weight",
                                    attention + "v_proj.weight"},
                                   projections));
    ASSIGN_OR_RETURN(w.norm_rope.q_norm, Norm(attention + "q_norm.weight"));
    ASSIGN_OR_RETURN(w.norm_rope.k_norm, Norm(attention + "k_norm.weight"));
    ASSIGN_OR_RETURN(w.norm_rope.rope, Rope(config, max_length));
    w.norm_rope.eps = weights_.norm_eps_;
    ASSIGN_OR_RETURN(w.attention_out, Matrix({attention + "o_proj.weight"}, projections));
    ASSIGN_OR_RETURN(w.post_attention_norm, Norm(prefix + "post_attention_layernorm.weight"));
    ASSIGN_OR_RETURN(w.mlp_norm, Norm(prefix + "pre_feedforward_layernorm.weight"));
    ASSIGN_OR_RETURN(w.gate_up,
                     Matrix({mlp + "gate_proj.weight", mlp + "up_proj.weight"}, projections));
    ASSIGN_OR_RETURN(w.down, Matrix({mlp + "down_proj.weight"}, projections));
    ASSIGN_OR_RETURN(w.post_mlp_norm, Norm(prefix + "post_feedforward_layernorm.weight"));
    return w;
  }

  // The tensors stacked by rows.
  absl::StatusOr<std::unique_ptr<LinearWeight>> Matrix(std::initializer_list<std::string> names,
                                                       size_t& size_bytes) {
    std::vector<DenseRows> stacked;
    for (const std::string& name : names) {
      const Tensor* tensor = Find(name);
      stacked.push_back({.n = tensor->num_rows(),
                         .k = tensor->row_size(),
                         .read = [tensor](int64_t first, int64_t count, float* out) {
                           model::ReadRows(*tensor, first, count, out);
                         }});
    }
    std::unique_ptr<LinearWeight> weight = backend_.PackDense(stacked);
    if (weight == nullptr) return NoRoom(*names.begin());
    size_bytes += weight->size_bytes();
    for (const std::string& name : names) Advance(*Find(name));
    return weight;
  }

  // The factor itself, whichever way the checkpoint stores it.
  absl::StatusOr<TensorView> Norm(const std::string& name) {
    const Tensor* tensor = Find(name);
    std::vector<float> factors(static_cast<size_t>(tensor->row_size()));
    model::ReadRows(*tensor, 0, 1, factors.data());
    if (checkpoint_.config().stores_norm_minus_one) {
      for (float& factor : factors) factor += 1.0f;
    }
    Advance(*tensor);
    return Store(factors, tensor->row_size(), name, weights_.bytes_.norms);
  }

  // One table for each layer type.
  absl::StatusOr<kernels::RopeTable> Rope(const LayerConfig& layer, int max_length) {
    const auto key = std::tuple(layer.head_dim, layer.rope_theta, layer.rope_factor);
    const auto found = ropes_.find(key);
    if (found != ropes_.end()) return found->second;
    const kernels::HostRopeTable host =
        kernels::MakeRopeTable({.head_dim = layer.head_dim,
                                .base = static_cast<float>(layer.rope_theta),
                                .factor = static_cast<float>(layer.rope_factor)},
                               max_length);
    kernels::RopeTable table;
    size_t& size_bytes = weights_.bytes_.rope;
    ASSIGN_OR_RETURN(table.cos, Store(host.cos, layer.head_dim / 2, "rotary table", size_bytes));
    ASSIGN_OR_RETURN(table.sin, Store(host.sin, layer.head_dim / 2, "rotary table", size_bytes));
    ropes_.emplace(key, table);
    return table;
  }

  absl::StatusOr<TensorView> Store(const std::vector<float>& values, int64_t cols,
                                   std::string_view name, size_t& size_bytes) {
    const size_t needed = values.size() * sizeof(float);
    std::unique_ptr<Buffer> buffer = backend_.Allocate(needed);
    if (buffer == nullptr) return NoRoom(name);
    backend_.Upload(values.data(), needed, buffer->data());
    size_bytes += buffer->size_bytes();
    const TensorView view{buffer->data(), DType::kF32, static_cast<int64_t>(values.size()) / cols,
                          cols};
    weights_.buffers_.push_back(std::move(buffer));
    return view;
  }

  const Tensor* Find(const std::string& name) const {
    const Tensor* tensor = checkpoint_.Find(name);
    CHECK(tensor != nullptr);  // Checkpoint::Open has seen to it
    return tensor;
  }

  void Advance(const Tensor& tensor) {
    bytes_read_ += tensor.data.size();
    if (progress_) {
      progress_(static_cast<double>(bytes_read_) / static_cast<double>(bytes_to_read_));
    }
  }

  absl::Status NoRoom(std::string_view name) const {
    return absl::ResourceExhaustedError(Concat("no device memory for ", name, " after ",
                                               weights_.bytes_.total(), " bytes of weights, limit ",
                                               backend_.memory_total_bytes(), " bytes"));
  }

  const model::Checkpoint& checkpoint_;
  kernels::Backend& backend_;
  const LoadProgress& progress_;
  Weights weights_;
  std::map<std::tuple<int, double, double>, kernels::RopeTable> ropes_;
  size_t bytes_to_read_ = 0;
  size_t bytes_read_ = 0;
};

absl::StatusOr<Weights> Weights::Load(const model::Checkpoint& checkpoint, int max_length,
                                      kernels::Backend& backend, const LoadProgress& progress) {
  return WeightLoader(checkpoint, backend, progress).Load(max_length);
}

}  // namespace weightless::worker
