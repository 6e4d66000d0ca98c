#include "model/tensor_layout.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless::model {
namespace {

using Shape = std::vector<int64_t>;

std::string ShapeText(const Shape& shape) { return Concat("[", absl::StrJoin(shape, ", "), "]"); }

struct LayerTensor {
  const char* name;  // after "layers.N."
  Shape shape;
};

std::vector<LayerTensor> LayerTensors(const ModelConfig& config, const LayerConfig& layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = layer.intermediate_size;
  const int64_t head_dim = layer.head_dim;
  const int64_t q_size = layer.num_heads * head_dim;
  const int64_t kv_size = layer.num_kv_heads * head_dim;
  return {
      {"input_layernorm.weight", {hidden}},
      {"post_attention_layernorm.weight", {hidden}},
      {"pre_feedforward_layernorm.weight", {hidden}},
      {"post_feedforward_layernorm.weight", {hidden}},
      {"self_attn.q_proj.weight", {q_size, hidden}},
      {"self_attn.k_proj.weight", {kv_size, hidden}},
      {"self_attn.v_proj.weight", {kv_size, hidden}},
      {"self_attn.o_proj.weight", {hidden, q_size}},
      {"self_attn.q_norm.weight", {head_dim}},
      {"self_attn.k_norm.weight", {head_dim}},
      {"mlp.gate_proj.weight", {inner, hidden}},
      {"mlp.up_proj.weight", {inner, hidden}},
      {"mlp.down_proj.weight", {hidden, inner}},
  };
}

// Collects the check of each expected tensor; what was not expected is left over.
class Checker {
 public:
  Checker(std::string_view file, const TensorMap& tensors) : file_(file), tensors_(tensors) {}

  absl::Status Expect(std::string_view name, const Shape& shape) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return Error("tensor ", name, " is missing");
    if (it->second.shape != shape) {
      return Error("tensor ", name, " has shape ", ShapeText(it->second.shape),
                   ", the configuration calls for ", ShapeText(shape));
    }
    ++num_found_;
    return absl::OkStatus();
  }

  size_t num_found() const { return num_found_; }

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(Concat(file_, ": ", parts...));
  }

 private:
  const std::string_view file_;
  const TensorMap& tensors_;
  size_t num_found_ = 0;
};

bool IsExpected(const ModelConfig& config, std::string_view name) {
  if (name == "embed_tokens.weight" || name == "norm.weight") return true;
  if (name == "lm_head.weight") return !config.tied_head;
  const std::optional<LayerName> layer = ParseLayerName(name, "layers.");
  if (!layer.has_value() || layer->layer >= static_cast<int>(config.layers.size())) return false;
  for (const LayerTensor& tensor : LayerTensors(config, config.layers[0])) {
    if (layer->rest == tensor.name) return true;
  }
  return false;
}

}  // namespace

std::optional<LayerName> ParseLayerName(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 4) return std::nullopt;
  int layer = 0;
  for (const char c : name.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    layer = layer * 10 + (c - '0');
  }
  if ((name[0] == '0' && dot > 1) || layer >= ConfigLimits::kLayers) return std::nullopt;
  return LayerName{layer, name.substr(dot + 1)};
}

absl::Status CheckTensors(std::string_view file, ModelConfig& config, TensorMap& tensors) {
  if (config.tied_head) tensors.erase("lm_head.weight");
  Checker checker(file, tensors);
  const auto embedding = tensors.find("embed_tokens.weight");
  if (embedding == tensors.end()) return checker.Error("tensor embed_tokens.weight is missing");
  const int64_t rows = embedding->second.num_rows();
  if (rows > ConfigLimits::kVocabSize) {
    return checker.Error("tensor embed_tokens.weight has ", rows, " rows, more than ",
                         ConfigLimits::kVocabSize);
  }
  config.vocab_size = static_cast<int>(rows);
  RETURN_IF_ERROR(FinishConfig(file, config));

  RETURN_IF_ERROR(checker.Expect("embed_tokens.weight", {rows, config.hidden_size}));
  RETURN_IF_ERROR(checker.Expect("norm.weight", {config.hidden_size}));
  if (!config.tied_head) {
    RETURN_IF_ERROR(checker.Expect("lm_head.weight", {rows, config.hidden_size}));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    for (const LayerTensor& tensor : LayerTensors(config, config.layers[i])) {
      RETURN_IF_ERROR(checker.Expect(Concat("layers.", i, ".", tensor.name), tensor.shape));
    }
  }
  if (checker.num_found() == tensors.size()) return absl::OkStatus();
  for (const auto& [name, tensor] : tensors) {
    if (!IsExpected(config, name)) {
      return checker.Error("tensor ", Quoted(name), " is not part of a Gemma 3 model of ",
                           config.layers.size(), " layers");
    }
  }
  return checker.Error("tensors are left over");
}

}  // namespace weightless::model
