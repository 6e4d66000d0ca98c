#include "model/tensor_layout.h"

#include <set>
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

// All but the projections.
std::vector<ExpectedTensor> CommonTensors(const ModelConfig& config) {
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  std::vector<ExpectedTensor> expected = {{"embed_tokens.weight", {vocab, hidden}},
                                          {"norm.weight", {hidden}}};
  if (!config.tied_head) expected.push_back({"lm_head.weight", {vocab, hidden}});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = Concat("layers.", i, ".");
    for (const char* norm :
         {"input_layernorm.weight", "post_attention_layernorm.weight",
          "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"}) {
      expected.push_back({prefix + norm, {hidden}});
    }
    const int64_t head_dim = config.layers[i].head_dim;
    expected.push_back({prefix + "self_attn.q_norm.weight", {head_dim}});
    expected.push_back({prefix + "self_attn.k_norm.weight", {head_dim}});
  }
  return expected;
}

template <typename... Parts>
absl::Status Error(std::string_view file, const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(file, ": ", parts...));
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

std::vector<ExpectedTensor> DenseProjections(const ModelConfig& config) {
  std::vector<ExpectedTensor> expected;
  const int64_t hidden = config.hidden_size;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const std::string attention = Concat("layers.", i, ".self_attn.");
    const std::string mlp = Concat("layers.", i, ".mlp.");
    const int64_t inner = layer.intermediate_size;
    const int64_t q_size = int64_t{layer.num_heads} * layer.head_dim;
    const int64_t kv_size = int64_t{layer.num_kv_heads} * layer.head_dim;
    expected.push_back({attention + "q_proj.weight", {q_size, hidden}});
    expected.push_back({attention + "k_proj.weight", {kv_size, hidden}});
    expected.push_back({attention + "v_proj.weight", {kv_size, hidden}});
    expected.push_back({attention + "o_proj.weight", {hidden, q_size}});
    expected.push_back({mlp + "gate_proj.weight", {inner, hidden}});
    expected.push_back({mlp + "up_proj.weight", {inner, hidden}});
    expected.push_back({mlp + "down_proj.weight", {hidden, inner}});
  }
  return expected;
}

absl::Status CheckTensors(std::string_view file, const std::vector<ExpectedTensor>& projections,
                          ModelConfig& config, TensorMap& tensors) {
  if (config.tied_head) tensors.erase("lm_head.weight");
  const auto embedding = tensors.find("embed_tokens.weight");
  if (embedding == tensors.end()) return Error(file, "tensor embed_tokens.weight is missing");
  const int64_t rows = embedding->second.num_rows();
  if (rows > ConfigLimits::kVocabSize) {
    return Error(file, "tensor embed_tokens.weight has ", rows, " rows, more than ",
                 ConfigLimits::kVocabSize);
  }
  config.vocab_size = static_cast<int>(rows);
  RETURN_IF_ERROR(FinishConfig(file, config));

  std::vector<ExpectedTensor> expected = CommonTensors(config);
  expected.insert(expected.end(), projections.begin(), projections.end());
  std::set<std::string_view> names;
  for (const ExpectedTensor& wanted : expected) {
    const auto it = tensors.find(wanted.name);
    if (it == tensors.end()) return Error(file, "tensor ", wanted.name, " is missing");
    if (it->second.shape != wanted.shape) {
      return Error(file, "tensor ", wanted.name, " has shape ", ShapeText(it->second.shape),
                   ", the configuration calls for ", ShapeText(wanted.shape));
    }
    names.insert(wanted.name);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!names.contains(name)) {
      return Error(file, "tensor ", Quoted(name), " is not part of a Gemma 3 model of ",
                   config.layers.size(), " layers");
    }
  }
  return absl::OkStatus();
}

}  // namespace weightless::model
