// Hyper-parameters of a decoder, resolved from any spelling (Hugging Face config.json, GGUF
// metadata) into per-layer records.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::model {

enum class LayerType { kSliding, kFull };

struct LayerConfig {
  LayerType type = LayerType::kFull;
  int num_heads = 0;
  int num_kv_heads = 0;  // num_heads is a multiple
  int head_dim = 0;
  int intermediate_size = 0;
  double rope_theta = 0;   // base
  double rope_factor = 1;  // divides every frequency
};

// What is accepted from a file. Several times beyond any published model, small enough that no
// product of two of them overflows an int64_t. Whether memory is there is asked when it is taken.
struct ConfigLimits {
  static constexpr int kLayers = 1024;
  static constexpr int kHiddenSize = 65536;
  static constexpr int kIntermediateSize = 1 << 20;
  static constexpr int kHeads = 1024;
  static constexpr int kHeadDim = 1024;
  static constexpr int kHeadDimStep = 16;  // head_dim is a multiple: kernels take 16 values at once
  static constexpr int kVocabSize = 1 << 22;
  static constexpr int kContext = 1 << 20;
  static constexpr int kStopIds = 24;
};

// Every count is positive and bounded by ConfigLimits; layers.size() is the number of layers.
struct ModelConfig {
  std::string architecture;  // "Gemma3ForCausalLM" or "Gemma3ForConditionalGeneration"
  int vocab_size = 0;        // rows of the embedding, as the tensors have it
  int hidden_size = 0;
  int max_context = 0;     // max_position_embeddings
  int sliding_window = 0;  // tokens, including the current one; 0 when no layer slides
  double norm_eps = 1e-6;
  double attention_scale = 1;  // multiplies q k^T
  bool tied_head = true;       // the head is the embedding
  // Norm weights on disk are w of (1 + w): Hugging Face Gemma 3; false for GGUF.
  bool stores_norm_minus_one = true;
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = 2;
  int32_t pad_token_id = 0;
  std::vector<LayerConfig> layers;
};

// Reads a config.json (Gemma 3 of every size, every spelling of the fields; text_config flattened
// over the top level). `name` is the file's name for messages. kInvalidArgument names file, field,
// value and limit; kUnimplemented names an architecture or feature that is not supported.
absl::StatusOr<ModelConfig> ParseConfigJson(std::string_view json, std::string_view name);

// Adds the stop ids of a generation_config.json to the config's, which stay sorted and distinct.
absl::Status MergeGenerationConfig(std::string_view json, std::string_view name,
                                   ModelConfig& config);

// The rules between fields that every reader ends with: heads a multiple of kv heads,
// head_dim of kHeadDimStep, a window where a layer slides, stop ids sorted, distinct and inside the
// vocabulary.
absl::Status FinishConfig(std::string_view name, ModelConfig& config);

}  // namespace weightless::model
