// One reader over the checkpoint formats: a Hugging Face directory (safetensors, one file or many
// shards) or a GGUF file. Files are mapped, untrusted, and checked in full at Open: nothing after
// Open can read outside a file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/tensor.h"

namespace weightless::model {

// Canonical tensor names are Hugging Face's without the model prefix:
//   embed_tokens.weight  norm.weight  lm_head.weight (only if untied)
//   layers.N.{input_layernorm,post_attention_layernorm,pre_feedforward_layernorm,post_feedforward_layernorm}.weight
//   layers.N.self_attn.{q_proj,k_proj,v_proj,o_proj,q_norm,k_norm}.weight
//   layers.N.mlp.{gate_proj,up_proj,down_proj}.weight
// Open has checked that each tensor the config calls for is there in its right shape.
// Immutable after Open, so thread-safe; keeps the files mapped as long as it lives.
class Checkpoint {
 public:
  // path: a directory with config.json and model.safetensors or model.safetensors.index.json, a
  // .gguf file, or a .safetensors file beside a config.json. kNotFound or kInvalidArgument, naming
  // file, field, value and limit; kUnimplemented for a model or feature that is not supported.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  virtual ~Checkpoint() = default;

  const ModelConfig& config() const { return config_; }
  // Base name of the directory (also for a .safetensors file in it) or GGUF file, without .gguf.
  const std::string& name() const { return name_; }
  // The tensor of that canonical name, or null.
  const Tensor* Find(std::string_view name) const;
  const TensorMap& tensors() const { return tensors_; }
  // Hex SHA-256 over the configuration, the tensor directory (name, type, shape) and the tensors'
  // bytes, in the order of names. Of a tensor above 4 MiB it takes 256 windows of 16 KiB at evenly
  // spaced places, the first at the start and the last at the end: any other training run, merge or
  // quantisation differs there. Cost: at most 4 MiB a tensor at 0.4 to 2 GB/s.
  std::string Identity() const;
  // What a router needs (proto FileChunk names): name -> contents. Of a directory those of
  // config.json, generation_config.json, tokenizer.json, tokenizer.model, tokenizer_config.json and
  // chat_template.jinja that are there; of a GGUF file "gguf_header".
  const std::map<std::string, std::string>& model_files() const { return model_files_; }

 protected:
  Checkpoint() = default;

  ModelConfig config_;
  std::string name_;
  TensorMap tensors_;
  std::map<std::string, std::string> model_files_;
};

}  // namespace weightless::model
