// One reader over the checkpoint formats: a Hugging Face directory (safetensors, one file or many
// shards) or a GGUF file. Files are mapped, untrusted, and checked in full at Open: nothing after
// Open can read outside a file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config.h"

namespace weightless::model {

enum class StorageType {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

// A tensor as it lies in the file: row-major, shape.back() contiguous; one- or two-dimensional.
struct Tensor {
  std::string name;  // canonical, see Checkpoint
  StorageType type = StorageType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;

  int64_t num_rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t row_size() const { return shape.back(); }
};

// Rows [first, first + count) as float32, dequantised in the order of operations of gemma.md 3.5.
// out holds count * row_size() values. CHECK-fails on rows outside the tensor. Thread-safe.
void ReadRows(const Tensor& tensor, int64_t first, int64_t count, float* out);

// Canonical tensor names are Hugging Face's without the model prefix:
//   embed_tokens.weight  norm.weight  lm_head.weight (only if untied)
//   layers.N.{input_layernorm,post_attention_layernorm,pre_feedforward_layernorm,post_feedforward_layernorm}.weight
//   layers.N.self_attn.{q_proj,k_proj,v_proj,o_proj,q_norm,k_norm}.weight
//   layers.N.mlp.{gate_proj,up_proj,down_proj}.weight
// Open has checked that each tensor the config calls for is there in its right shape.
// Immutable after Open, so thread-safe; keeps the files mapped as long as it lives.
class Checkpoint {
 public:
  // path: a directory with config.json, a .gguf file, or a .safetensors file beside a config.json.
  // kNotFound or kInvalidArgument, naming file, field, value and limit.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  virtual ~Checkpoint() = default;

  const ModelConfig& config() const { return config_; }
  // Base name of the directory or file, without .gguf.
  const std::string& name() const { return name_; }
  // The tensor of that canonical name, or null.
  const Tensor* Find(std::string_view name) const;
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  // Hex SHA-256 over configuration, tensor directory, and every tensor's bytes.
  // Reads the whole checkpoint once, at several GB/s a core (it may sample large tensors in a
  // documented, fixed way).
  std::string Identity() const;
  // What a router needs (proto FileChunk names): name -> contents.
  const std::map<std::string, std::string>& model_files() const { return model_files_; }

 protected:
  Checkpoint() = default;

  ModelConfig config_;
  std::string name_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::string> model_files_;
};

}  // namespace weightless::model
