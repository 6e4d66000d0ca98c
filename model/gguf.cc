#include "model/gguf.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "common/concat.h"
#include "common/status.h"
#include "model/tensor_layout.h"

namespace weightless::model {
namespace {

// Typed, bounded look-ups below "gemma3.".
class Metadata {
 public:
  explicit Metadata(const GgufHeader& header) : header_(header) {}

  static std::string Key(std::string_view field) { return Concat("gemma3.", field); }

  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const {
    return absl::InvalidArgumentError(Concat(header_.name(), ": ", parts...));
  }
  template <typename... Parts>
  absl::Status Unsupported(const Parts&... parts) const {
    return absl::UnimplementedError(Concat(header_.name(), ": ", parts...));
  }

  absl::StatusOr<std::optional<int>> OptionalInt(const std::string& key, int min, int max) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, header_.GetInt(key));
    if (!value.has_value()) return std::optional<int>();
    RETURN_IF_ERROR(CheckRange(key, *value, min, max));
    return std::optional<int>(static_cast<int>(*value));
  }
  absl::StatusOr<int> Int(std::string_view field, int max) const {
    const std::string key = Key(field);
    ASSIGN_OR_RETURN(const std::optional<int> value, OptionalInt(key, 1, max));
    if (!value.has_value()) return Invalid("metadata ", key, " is missing");
    return *value;
  }
  // One number for all layers, or one for each.
  absl::StatusOr<std::vector<int>> PerLayer(std::string_view field, size_t num_layers,
                                            int max) const {
    const std::string key = Key(field);
    const GgufValue* value = header_.Find(key);
    if (value == nullptr || !std::holds_alternative<GgufInts>(*value)) {
      ASSIGN_OR_RETURN(const int number, Int(field, max));
      return std::vector<int>(num_layers, number);
    }
    const GgufInts& list = std::get<GgufInts>(*value);
    if (list.size() != num_layers) {
      return Invalid("metadata ", key, " has ", list.size(), " entries, block_count is ",
                     num_layers);
    }
    std::vector<int> numbers;
    for (const int64_t number : list) {
      RETURN_IF_ERROR(CheckRange(key, number, 1, max));
      numbers.push_back(static_cast<int>(number));
    }
    return numbers;
  }
  // The first of the fields that is there, a number in (0, max].
  absl::StatusOr<double> Positive(std::initializer_list<std::string_view> fields, double max,
                                  std::optional<double> if_absent) const {
    for (const std::string_view field : fields) {
      const std::string key = Key(field);
      ASSIGN_OR_RETURN(const std::optional<double> value, header_.GetFloat(key));
      if (!value.has_value()) continue;
      if (*value > 0 && *value <= max) return *value;
      return Invalid("metadata ", key, " ", *value, " is not above 0 and at most ", max);
    }
    if (if_absent.has_value()) return *if_absent;
    return Invalid("metadata ", Key(*fields.begin()), " is missing");
  }

 private:
  absl::Status CheckRange(std::string_view key, int64_t value, int min, int max) const {
    if (value >= min && value <= max) return absl::OkStatus();
    return Invalid("metadata ", key, " ", value, " is not between ", min, " and ", max);
  }

  const GgufHeader& header_;
};

absl::Status RejectUnsupported(const GgufHeader& header, const Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto architecture, header.GetString("general.architecture"));
  if (!architecture.has_value()) return metadata.Invalid("general.architecture is missing");
  if (*architecture == "gemma4") {
    return metadata.Unsupported("architecture \"gemma4\": Gemma 4 is not supported, only Gemma 3");
  }
  if (*architecture != "gemma3") {
    return metadata.Unsupported("architecture ", Quoted(*architecture),
                                " is not supported, only \"gemma3\"");
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> parts, header.GetInt("split.count"));
  if (parts.value_or(1) > 1) {
    return metadata.Unsupported("split.count ", *parts, ": a file in parts is not supported");
  }
  for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const std::string key = Metadata::Key(field);
    ASSIGN_OR_RETURN(const std::optional<double> cap, header.GetFloat(key));
    if (cap.value_or(0) != 0) return metadata.Unsupported(key, " ", *cap, " is set; it must be 0");
  }
  return absl::OkStatus();
}

// A period, a flag for each layer (true: sliding), or nothing, which means the family's period 6.
absl::Status ReadLayerTypes(const GgufHeader& header, const Metadata& metadata,
                            std::vector<LayerConfig>& layers) {
  const std::string key = Metadata::Key("attention.sliding_window_pattern");
  const GgufValue* value = header.Find(key);
  std::vector<bool> sliding;
  if (value != nullptr && std::holds_alternative<GgufBools>(*value)) {
    sliding = std::get<GgufBools>(*value);
  } else if (value != nullptr && std::holds_alternative<GgufInts>(*value)) {
    for (const int64_t flag : std::get<GgufInts>(*value)) sliding.push_back(flag != 0);
  } else {
    ASSIGN_OR_RETURN(const auto period, metadata.OptionalInt(key, 1, ConfigLimits::kLayers));
    const size_t p = static_cast<size_t>(period.value_or(6));
    for (size_t i = 0; i < layers.size(); ++i) sliding.push_back((i + 1) % p != 0);
  }
  if (sliding.size() != layers.size()) {
    return metadata.Invalid("metadata ", key, " has ", sliding.size(), " entries, block_count is ",
                            layers.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].type = sliding[i] ? LayerType::kSliding : LayerType::kFull;
  }
  return absl::OkStatus();
}

absl::Status ReadRopes(const GgufHeader& header, const Metadata& metadata,
                       std::vector<LayerConfig>& layers) {
  constexpr double kMaxTheta = 1e12;
  ASSIGN_OR_RETURN(const double full_theta,
                   metadata.Positive({"rope.freq_base", "rope.global.freq_base"}, kMaxTheta, 1e6));
  ASSIGN_OR_RETURN(
      const double sliding_theta,
      metadata.Positive({"rope.freq_base_swa", "rope.local.freq_base"}, kMaxTheta, 1e4));
  // A factor without a type is linear. It applies to full layers only.
  ASSIGN_OR_RETURN(double factor, metadata.Positive({"rope.scaling.factor"}, 1e6, 1));
  const std::string key = Metadata::Key("rope.scaling.type");
  ASSIGN_OR_RETURN(const auto type, header.GetString(key));
  if (type.has_value() && *type != "linear" && *type != "none") {
    return metadata.Unsupported(key, " ", Quoted(*type),
                                " is not supported, only \"linear\" and \"none\"");
  }
  if (type.has_value() && *type == "none") factor = 1;
  for (LayerConfig& layer : layers) {
    const bool full = layer.type == LayerType::kFull;
    layer.rope_theta = full ? full_theta : sliding_theta;
    layer.rope_factor = full ? factor : 1;
  }
  return absl::OkStatus();
}

absl::Status ReadLayers(const GgufHeader& header, const Metadata& metadata, ModelConfig& config) {
  using L = ConfigLimits;
  ASSIGN_OR_RETURN(const int num_layers, metadata.Int("block_count", L::kLayers));
  const size_t n = static_cast<size_t>(num_layers);
  config.layers.resize(n);
  ASSIGN_OR_RETURN(const int head_dim, metadata.Int("attention.key_length", L::kHeadDim));
  ASSIGN_OR_RETURN(const auto value_length,
                   metadata.OptionalInt(Metadata::Key("attention.value_length"), 1, L::kHeadDim));
  if (value_length.value_or(head_dim) != head_dim) {
    return metadata.Invalid("attention.value_length ", *value_length,
                            " differs from attention.key_length ", head_dim);
  }
  ASSIGN_OR_RETURN(const auto heads, metadata.PerLayer("attention.head_count", n, L::kHeads));
  ASSIGN_OR_RETURN(const auto kv_heads, metadata.PerLayer("attention.head_count_kv", n, L::kHeads));
  ASSIGN_OR_RETURN(const auto inner,
                   metadata.PerLayer("feed_forward_length", n, L::kIntermediateSize));
  for (size_t i = 0; i < n; ++i) {
    LayerConfig& layer = config.layers[i];
    layer.num_heads = heads[i];
    layer.num_kv_heads = kv_heads[i];
    layer.head_dim = head_dim;
    layer.intermediate_size = inner[i];
  }
  // The query scale is not stored. The 27B, known by its 62 layers, scales by hidden size a head,
  // every other size by head_dim.
  const double scalar = num_layers == 62 ? static_cast<double>(config.hidden_size) / heads[0]
                                         : static_cast<double>(head_dim);
  config.attention_scale = 1 / std::sqrt(scalar);
  RETURN_IF_ERROR(ReadLayerTypes(header, metadata, config.layers));
  return ReadRopes(header, metadata, config.layers);
}

// eos and eot ids, and the tokens that end a text and a turn by name.
absl::Status ReadTokenIds(const GgufHeader& header, const Metadata& metadata, ModelConfig& config) {
  const int max = ConfigLimits::kVocabSize - 1;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    ASSIGN_OR_RETURN(const std::optional<int> id, metadata.OptionalInt(key, 0, max));
    if (id.has_value()) config.eos_token_ids.push_back(*id);
  }
  ASSIGN_OR_RETURN(const GgufStrings* tokens,
                   header.GetArray<GgufStrings>("tokenizer.ggml.tokens"));
  if (tokens != nullptr) {
    for (const std::string_view name : {"<eos>", "<end_of_turn>"}) {
      const auto it = std::find(tokens->begin(), tokens->end(), name);
      if (it == tokens->end()) continue;
      config.eos_token_ids.push_back(static_cast<int32_t>(it - tokens->begin()));
    }
  }
  if (config.eos_token_ids.empty()) config.eos_token_ids = {1};
  ASSIGN_OR_RETURN(const auto bos, metadata.OptionalInt("tokenizer.ggml.bos_token_id", 0, max));
  ASSIGN_OR_RETURN(const auto pad, metadata.OptionalInt("tokenizer.ggml.padding_token_id", 0, max));
  config.bos_token_id = bos.value_or(2);
  config.pad_token_id = pad.value_or(0);
  return absl::OkStatus();
}

std::optional<StorageType> ToStorageType(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return StorageType::kF32;
    case 1:
      return StorageType::kF16;
    case 2:
      return StorageType::kQ4_0;
    case 3:
      return StorageType::kQ4_1;
    case 6:
      return StorageType::kQ5_0;
    case 7:
      return StorageType::kQ5_1;
    case 8:
      return StorageType::kQ8_0;
    case 10:
      return StorageType::kQ2_K;
    case 11:
      return StorageType::kQ3_K;
    case 12:
      return StorageType::kQ4_K;
    case 13:
      return StorageType::kQ5_K;
    case 14:
      return StorageType::kQ6_K;
    case 30:
      return StorageType::kBF16;
    default:
      return std::nullopt;
  }
}

struct NamePair {
  std::string_view gguf;
  std::string_view canonical;
};
constexpr NamePair kModelNames[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr NamePair kLayerNames[] = {
    // after "blk.N." and "layers.N."
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};

// Empty for an unknown name.
std::string CanonicalName(std::string_view name) {
  for (const NamePair& pair : kModelNames) {
    if (name == pair.gguf) return std::string(pair.canonical);
  }
  const std::optional<LayerName> layer = ParseLayerName(name, "blk.");
  if (!layer.has_value()) return {};
  for (const NamePair& pair : kLayerNames) {
    if (layer->rest == pair.gguf) return Concat("layers.", layer->layer, ".", pair.canonical);
  }
  return {};
}

bool IsIgnored(std::string_view name) {
  return name.substr(0, 2) == "v." || name.substr(0, 3) == "mm.";
}

uint64_t DataBytes(const GgufHeader& header, std::string_view bytes) {
  return bytes.size() > header.data_offset() ? bytes.size() - header.data_offset() : 0;
}

// Bytes of a tensor's data; requires whole blocks in a row. The product of the dimensions is
// bounded by the header's checks, so this cannot overflow.
uint64_t TensorBytes(const GgufTensorInfo& info, const StorageFormat& format) {
  const int64_t num_blocks =
      info.dims[0] / format.block_size * info.dims[1] * info.dims[2] * info.dims[3];
  return static_cast<uint64_t>(num_blocks) * static_cast<uint64_t>(format.block_bytes);
}

// One text tensor, its data checked against the file.
absl::StatusOr<Tensor> ReadTensor(const GgufHeader& header, const GgufTensorInfo& info,
                                  std::string_view bytes) {
  const auto invalid = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        Concat(header.name(), ": tensor ", Quoted(info.name), parts...));
  };
  Tensor tensor;
  tensor.name = CanonicalName(info.name);
  if (tensor.name.empty()) return invalid(" is not part of a Gemma 3 text model");
  const std::optional<StorageType> type = ToStorageType(info.type);
  if (!type.has_value()) return invalid(" has the unsupported ggml type ", info.type);
  tensor.type = *type;
  const StorageFormat& format = FormatOf(*type);
  if (info.num_dims > 2) return invalid(" has ", info.num_dims, " dimensions, more than 2");
  if (info.dims[0] % format.block_size != 0) {
    return invalid(" has rows of ", info.dims[0], " values, not a multiple of the ",
                   format.block_size, " of a ", format.name, " block");
  }
  if (info.num_dims == 2) tensor.shape.push_back(info.dims[1]);
  tensor.shape.push_back(info.dims[0]);
  const uint64_t size = TensorBytes(info, format);
  const uint64_t available = DataBytes(header, bytes);
  if (info.offset % header.alignment() != 0) {
    return invalid(" lies at offset ", info.offset, ", not a multiple of the alignment ",
                   header.alignment());
  }
  if (info.offset > available || size > available - info.offset) {
    return invalid(" lies at offset ", info.offset, " and needs ", size, " bytes, the data has ",
                   available);
  }
  const std::string_view data = bytes.substr(header.data_offset() + info.offset, size);
  tensor.data = std::as_bytes(std::span(data.data(), data.size()));
  return tensor;
}

// Whether the tensors, ignored ones included, fill the data section. What follows an ignored tensor
// of a type that we do not know is not checked.
absl::Status CheckTiling(const GgufHeader& header, uint64_t num_data_bytes) {
  std::vector<const GgufTensorInfo*> order;
  for (const GgufTensorInfo& info : header.tensors()) order.push_back(&info);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->offset < b->offset; });
  const auto invalid = [&](const auto&... parts) {
    return absl::InvalidArgumentError(Concat(header.name(), ": ", parts...));
  };
  const GgufTensorInfo* previous = nullptr;
  uint64_t end = 0;  // of the previous tensor with its padding
  bool has_end = true;
  for (const GgufTensorInfo* info : order) {
    if (has_end && info->offset != end) {
      if (previous == nullptr) {
        return invalid("the first tensor ", Quoted(info->name), " lies at offset ", info->offset,
                       ", not 0");
      }
      return invalid("tensor ", Quoted(info->name), " at offset ", info->offset,
                     info->offset < end ? " overlaps tensor " : " leaves a gap after tensor ",
                     Quoted(previous->name), ", which begins at ", previous->offset,
                     " and by its type and shape ends at ", end);
    }
    previous = info;
    const std::optional<StorageType> type = ToStorageType(info->type);
    has_end = type.has_value() && info->dims[0] % FormatOf(*type).block_size == 0;
    if (!has_end) continue;
    const uint64_t size = TensorBytes(*info, FormatOf(*type));
    const uint64_t alignment = header.alignment();
    end = info->offset + (size + alignment - 1) / alignment * alignment;
  }
  if (previous == nullptr || !has_end || num_data_bytes <= end) return absl::OkStatus();
  return invalid("the data goes on for ", num_data_bytes - end, " bytes after the last tensor ",
                 Quoted(previous->name), ", which by its type and shape ends at ", end);
}

}  // namespace

absl::StatusOr<ModelConfig> GgufConfig(const GgufHeader& header) {
  using L = ConfigLimits;
  const Metadata metadata(header);
  RETURN_IF_ERROR(RejectUnsupported(header, metadata));
  ModelConfig config;
  config.architecture = "Gemma3ForCausalLM";
  config.stores_norm_minus_one = false;
  for (const GgufTensorInfo& info : header.tensors()) {
    if (info.name == "output.weight") config.tied_head = false;
    if (info.name != "token_embd.weight") continue;
    if (info.dims[1] > L::kVocabSize) {
      return metadata.Invalid("token_embd.weight has ", info.dims[1], " rows, more than ",
                              L::kVocabSize);
    }
    config.vocab_size = static_cast<int>(info.dims[1]);
  }
  if (config.vocab_size == 0) return metadata.Invalid("tensor token_embd.weight is missing");
  ASSIGN_OR_RETURN(config.hidden_size, metadata.Int("embedding_length", L::kHiddenSize));
  ASSIGN_OR_RETURN(config.max_context, metadata.Int("context_length", L::kContext));
  ASSIGN_OR_RETURN(const auto window,
                   metadata.OptionalInt(Metadata::Key("attention.sliding_window"), 0, L::kContext));
  config.sliding_window = window.value_or(0);
  ASSIGN_OR_RETURN(config.norm_eps,
                   metadata.Positive({"attention.layer_norm_rms_epsilon"}, 1, std::nullopt));
  RETURN_IF_ERROR(ReadLayers(header, metadata, config));
  RETURN_IF_ERROR(ReadTokenIds(header, metadata, config));
  RETURN_IF_ERROR(FinishConfig(header.name(), config));
  return config;
}

absl::Status AddGgufTensors(const GgufHeader& header, std::string_view bytes, TensorMap& tensors) {
  for (const GgufTensorInfo& info : header.tensors()) {
    if (IsIgnored(info.name)) continue;
    ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(header, info, bytes));
    if (!tensors.emplace(tensor.name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          Concat(header.name(), ": tensor ", Quoted(info.name), " occurs twice"));
    }
  }
  return CheckTiling(header, DataBytes(header, bytes));
}

}  // namespace weightless::model
