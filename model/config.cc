#include "model/config.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <optional>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"

namespace weightless::model {
namespace {

namespace json = boost::json;

// The fields of a config.json: text_config over the top level. A null is an absent field. Every
// error begins with the file's name and names the field.
class Fields {
 public:
  // `top` outlives this; text may be null.
  Fields(std::string_view file, const json::object* text, const json::object& top)
      : file_(file), text_(text), top_(top) {}

  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const {
    return absl::InvalidArgumentError(Concat(file_, ": ", parts...));
  }
  template <typename... Parts>
  absl::Status Unsupported(const Parts&... parts) const {
    return absl::UnimplementedError(Concat(file_, ": ", parts...));
  }

  // Null when absent or null.
  const json::value* Find(std::string_view key) const {
    for (const json::object* object : {text_, &top_}) {
      if (object == nullptr) continue;
      const json::value* value = object->if_contains(key);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }

  // An integer in [min, max]; a number with a zero fraction counts.
  absl::StatusOr<int> Int(std::string_view key, int min, int max, int if_absent) const {
    const json::value* value = Find(key);
    if (value == nullptr) return if_absent;
    return ToInt(*value, key, min, max);
  }
  absl::StatusOr<int> ToInt(const json::value& value, std::string_view key, int min,
                            int max) const {
    ASSIGN_OR_RETURN(const double number, ToNumber(value, key));
    if (number != std::floor(number)) return Invalid(key, " ", number, " is not an integer");
    if (number < min || number > max) {
      return Invalid(key, " ", Spelled(value, number), " is not between ", min, " and ", max);
    }
    return static_cast<int>(number);
  }

  // A number in (0, max].
  absl::StatusOr<double> Positive(std::string_view key, double max, double if_absent) const {
    const json::value* value = Find(key);
    if (value == nullptr) return if_absent;
    return ToPositive(*value, key, max);
  }
  absl::StatusOr<double> ToPositive(const json::value& value, std::string_view key,
                                    double max) const {
    ASSIGN_OR_RETURN(const double number, ToNumber(value, key));
    if (!(number > 0 && number <= max)) {
      return Invalid(key, " ", Spelled(value, number), " is not above 0 and at most ", max);
    }
    return number;
  }

  absl::StatusOr<bool> Bool(std::string_view key, bool if_absent) const {
    const json::value* value = Find(key);
    if (value == nullptr) return if_absent;
    if (!value->is_bool()) return Invalid(key, " is not a boolean");
    return value->as_bool();
  }

  absl::StatusOr<std::string> String(std::string_view key, std::string_view if_absent) const {
    const json::value* value = Find(key);
    if (value == nullptr) return std::string(if_absent);
    if (!value->is_string()) return Invalid(key, " is not a string");
    return std::string(value->as_string().c_str(), value->as_string().size());
  }

 private:
  absl::StatusOr<double> ToNumber(const json::value& value, std::string_view key) const {
    if (const int64_t* number = value.if_int64()) return static_cast<double>(*number);
    if (const uint64_t* number = value.if_uint64()) return static_cast<double>(*number);
    if (const double* number = value.if_double()) return *number;
    return Invalid(key, " is not a number");
  }
  // An integer with all its digits, as the file has it.
  static std::string Spelled(const json::value& value, double number) {
    if (const int64_t* integer = value.if_int64()) return Concat(*integer);
    if (const uint64_t* integer = value.if_uint64()) return Concat(*integer);
    return Concat(number);
  }

  const std::string_view file_;
  const json::object* const text_;
  const json::object& top_;
};

bool IsGemma4(std::string_view name) {
  return name.substr(0, 6) == "Gemma4" || name.substr(0, 6) == "gemma4";
}

absl::StatusOr<std::string> ReadArchitecture(const Fields& fields) {
  ASSIGN_OR_RETURN(const std::string model_type, fields.String("model_type", ""));
  std::string architecture;
  if (const json::value* list = fields.Find("architectures")) {
    if (!list->is_array() || list->as_array().empty() || !list->as_array()[0].is_string()) {
      return fields.Invalid("architectures is not a list of names");
    }
    architecture = list->as_array()[0].as_string().c_str();
  } else if (model_type == "gemma3_text") {
    architecture = "Gemma3ForCausalLM";
  } else if (model_type == "gemma3") {
    architecture = "Gemma3ForConditionalGeneration";
  } else if (model_type.empty()) {
    return fields.Invalid("neither architectures nor model_type is there");
  } else {
    architecture = model_type;
  }
  if (IsGemma4(architecture) || IsGemma4(model_type)) {
    return fields.Unsupported("architecture ", Quoted(architecture),
                              ": Gemma 4 is not supported, only Gemma 3");
  }
  if ((architecture != "Gemma3ForCausalLM" && architecture != "Gemma3ForConditionalGeneration") ||
      (!model_type.empty() && model_type != "gemma3" && model_type != "gemma3_text")) {
    return fields.Unsupported("architecture ", Quoted(architecture), " with model_type ",
                              Quoted(model_type), " is not supported, only Gemma 3");
  }
  return architecture;
}

// Features of the family's code that no Gemma 3 model uses.
absl::Status RejectUnsupported(const Fields& fields) {
  for (const std::string_view key :
       {"attn_logit_softcapping", "final_logit_softcapping", "quantization_config"}) {
    if (fields.Find(key) != nullptr) return fields.Unsupported(key, " is set; it must be null");
  }
  ASSIGN_OR_RETURN(const bool bias, fields.Bool("attention_bias", false));
  if (bias) return fields.Unsupported("attention_bias true is not supported");
  if (const json::value* value = fields.Find("use_bidirectional_attention")) {
    if (!value->is_bool() || value->as_bool()) {
      return fields.Unsupported(
          "use_bidirectional_attention is set; only causal attention is "
          "supported");
    }
  }
  for (const std::string_view key : {"hidden_activation", "hidden_act"}) {
    ASSIGN_OR_RETURN(const std::string activation, fields.String(key, "gelu_pytorch_tanh"));
    if (activation != "gelu_pytorch_tanh") {
      return fields.Unsupported(key, " ", Quoted(activation),
                                " is not supported, only \"gelu_pytorch_tanh\"");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadLayerTypes(const Fields& fields, std::vector<LayerConfig>& layers) {
  if (const json::value* list = fields.Find("layer_types")) {
    if (!list->is_array()) return fields.Invalid("layer_types is not a list");
    const json::array& types = list->as_array();
    if (types.size() != layers.size()) {
      return fields.Invalid("layer_types has ", types.size(), " entries, num_hidden_layers is ",
                            layers.size());
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      if (types[i] == "sliding_attention") {
        layers[i].type = LayerType::kSliding;
      } else if (types[i] == "full_attention") {
        layers[i].type = LayerType::kFull;
      } else {
        return fields.Invalid("layer_types[", i,
                              "] is neither \"sliding_attention\" nor \"full_attention\"");
      }
    }
    return absl::OkStatus();
  }
  const char* const key = fields.Find("_sliding_window_pattern") != nullptr
                              ? "_sliding_window_pattern"
                              : "sliding_window_pattern";
  ASSIGN_OR_RETURN(const int period, fields.Int(key, 1, ConfigLimits::kLayers, 6));
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool full = (i + 1) % static_cast<size_t>(period) == 0;
    layers[i].type = full ? LayerType::kFull : LayerType::kSliding;
  }
  return absl::OkStatus();
}

struct Rope {
  double theta;
  double factor = 1;
};

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// One set of RoPE parameters: {rope_type|type, factor, rope_theta}. What it does not say stays.
absl::Status ReadRope(const Fields& fields, const json::value& value, std::string_view key,
                      Rope& rope) {
  if (!value.is_object()) return fields.Invalid(key, " is not an object");
  const json::object& object = value.as_object();
  const auto find = [&object](std::string_view name) -> const json::value* {
    const json::value* field = object.if_contains(name);
    return field == nullptr || field->is_null() ? nullptr : field;
  };
  if (const json::value* theta = find("rope_theta")) {
    ASSIGN_OR_RETURN(rope.theta, fields.ToPositive(*theta, Concat(key, ".rope_theta"), kMaxTheta));
  }
  if (const json::value* partial = find("partial_rotary_factor")) {
    if (*partial != 1.0 && *partial != 1) {
      return fields.Unsupported(key, ".partial_rotary_factor is not supported");
    }
  }
  const json::value* type = find("rope_type");
  if (type == nullptr) type = find("type");
  const json::value* factor = find("factor");
  if (type == nullptr) {
    if (factor == nullptr) return absl::OkStatus();
    return fields.Invalid(key, ".factor is given without a rope_type");
  }
  if (*type == "default") return absl::OkStatus();
  if (*type != "linear") {
    return fields.Unsupported(key, ".rope_type ",
                              type->is_string() ? Quoted(type->as_string().c_str()) : "(not text)",
                              " is not supported, only \"default\" and \"linear\"");
  }
  if (factor == nullptr) return fields.Invalid(key, ".factor is missing");
  ASSIGN_OR_RETURN(rope.factor, fields.ToPositive(*factor, Concat(key, ".factor"), kMaxFactor));
  return absl::OkStatus();
}

// Old form: rope_theta, rope_local_base_freq, rope_scaling (global layers only). New form:
// rope_parameters by layer type. Mixed: flat thetas, rope_parameters with type and factor only.
absl::Status ReadRopes(const Fields& fields, std::vector<LayerConfig>& layers) {
  Rope full, sliding;
  ASSIGN_OR_RETURN(full.theta, fields.Positive("rope_theta", kMaxTheta, 1e6));
  ASSIGN_OR_RETURN(sliding.theta, fields.Positive("rope_local_base_freq", kMaxTheta, 1e4));
  const char* const key =
      fields.Find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  if (const json::value* value = fields.Find(key)) {
    const json::object* object = value->if_object();
    bool nested = false;
    for (const auto& [name, rope] : {std::pair<std::string_view, Rope*>("full_attention", &full),
                                     {"sliding_attention", &sliding}}) {
      const json::value* part = object == nullptr ? nullptr : object->if_contains(name);
      if (part == nullptr) continue;
      nested = true;
      if (part->is_null()) continue;
      RETURN_IF_ERROR(ReadRope(fields, *part, Concat(key, ".", name), *rope));
    }
    if (!nested) RETURN_IF_ERROR(ReadRope(fields, *value, key, full));
  }
  for (LayerConfig& layer : layers) {
    const Rope& rope = layer.type == LayerType::kFull ? full : sliding;
    layer.rope_theta = rope.theta;
    layer.rope_factor = rope.factor;
  }
  return absl::OkStatus();
}

absl::Status ReadLayers(const Fields& fields, ModelConfig& config) {
  using L = ConfigLimits;
  ASSIGN_OR_RETURN(const int num_layers, fields.Int("num_hidden_layers", 1, L::kLayers, 26));
  LayerConfig layer;
  ASSIGN_OR_RETURN(layer.num_heads, fields.Int("num_attention_heads", 1, L::kHeads, 8));
  ASSIGN_OR_RETURN(layer.num_kv_heads, fields.Int("num_key_value_heads", 1, L::kHeads, 4));
  ASSIGN_OR_RETURN(layer.head_dim, fields.Int("head_dim", 2, L::kHeadDim, 256));
  ASSIGN_OR_RETURN(layer.intermediate_size,
                   fields.Int("intermediate_size", 1, L::kIntermediateSize, 9216));
  config.layers.assign(static_cast<size_t>(num_layers), layer);
  RETURN_IF_ERROR(ReadLayerTypes(fields, config.layers));
  return ReadRopes(fields, config.layers);
}

// eos_token_id: one id or a list of ids.
absl::Status AddStopIds(const Fields& fields, const json::value* value, ModelConfig& config) {
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  json::array ids;
  if (value->is_array()) {
    ids = value->as_array();
  } else {
    ids.push_back(*value);
  }
  if (ids.size() > static_cast<size_t>(ConfigLimits::kStopIds)) {
    return fields.Invalid("eos_token_id has ", ids.size(), " entries, more than ",
                          ConfigLimits::kStopIds);
  }
  for (const json::value& id : ids) {
    ASSIGN_OR_RETURN(const int token,
                     fields.ToInt(id, "eos_token_id", 0, ConfigLimits::kVocabSize - 1));
    config.eos_token_ids.push_back(token);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseConfigJson(std::string_view text, std::string_view name) {
  using L = ConfigLimits;
  absl::StatusOr<json::value> parsed = ParseJson(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(Concat(name, ": ", parsed.status().message()));
  }
  if (!parsed->is_object()) return absl::InvalidArgumentError(Concat(name, ": not a JSON object"));
  const json::object& top = parsed->as_object();
  const json::value* nested = top.if_contains("text_config");
  const json::object* text_config = nested == nullptr ? nullptr : nested->if_object();
  if (nested != nullptr && text_config == nullptr && !nested->is_null()) {
    return absl::InvalidArgumentError(Concat(name, ": text_config is not an object"));
  }
  const Fields fields(name, text_config, top);

  ModelConfig config;
  // The architecture is the whole model's, so the top level alone says it.
  ASSIGN_OR_RETURN(config.architecture, ReadArchitecture(Fields(name, nullptr, top)));
  RETURN_IF_ERROR(RejectUnsupported(fields));
  ASSIGN_OR_RETURN(config.vocab_size, fields.Int("vocab_size", 1, L::kVocabSize, 262208));
  ASSIGN_OR_RETURN(config.hidden_size, fields.Int("hidden_size", 1, L::kHiddenSize, 2304));
  ASSIGN_OR_RETURN(config.max_context,
                   fields.Int("max_position_embeddings", 1, L::kContext, 131072));
  ASSIGN_OR_RETURN(config.sliding_window, fields.Int("sliding_window", 1, L::kContext, 4096));
  ASSIGN_OR_RETURN(config.norm_eps, fields.Positive("rms_norm_eps", 1, 1e-6));
  ASSIGN_OR_RETURN(const double scalar, fields.Positive("query_pre_attn_scalar", 1e6, 256));
  config.attention_scale = 1 / std::sqrt(scalar);
  ASSIGN_OR_RETURN(config.tied_head, fields.Bool("tie_word_embeddings", true));
  ASSIGN_OR_RETURN(config.bos_token_id, fields.Int("bos_token_id", 0, L::kVocabSize - 1, 2));
  ASSIGN_OR_RETURN(config.pad_token_id, fields.Int("pad_token_id", 0, L::kVocabSize - 1, 0));
  RETURN_IF_ERROR(ReadLayers(fields, config));
  for (const json::object* object : {text_config, &top}) {
    if (object == nullptr) continue;
    RETURN_IF_ERROR(AddStopIds(fields, object->if_contains("eos_token_id"), config));
  }
  if (config.eos_token_ids.empty()) config.eos_token_ids = {1};
  RETURN_IF_ERROR(FinishConfig(name, config));
  return config;
}

absl::Status MergeGenerationConfig(std::string_view text, std::string_view name,
                                   ModelConfig& config) {
  absl::StatusOr<json::value> parsed = ParseJson(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(Concat(name, ": ", parsed.status().message()));
  }
  if (!parsed->is_object()) return absl::InvalidArgumentError(Concat(name, ": not a JSON object"));
  const Fields fields(name, nullptr, parsed->as_object());
  RETURN_IF_ERROR(AddStopIds(fields, fields.Find("eos_token_id"), config));
  return FinishConfig(name, config);
}

absl::Status FinishConfig(std::string_view name, ModelConfig& config) {
  const auto invalid = [name](const auto&... parts) {
    return absl::InvalidArgumentError(Concat(name, ": ", parts...));
  };
  bool slides = false;
  for (const LayerConfig& layer : config.layers) {
    if (layer.num_heads % layer.num_kv_heads != 0) {
      return invalid("number of heads ", layer.num_heads, " is not a multiple of the ",
                     layer.num_kv_heads, " kv heads");
    }
    if (layer.head_dim % ConfigLimits::kHeadDimStep != 0) {
      return invalid("head_dim ", layer.head_dim, " is not a multiple of ",
                     ConfigLimits::kHeadDimStep);
    }
    slides = slides || layer.type == LayerType::kSliding;
  }
  if (!slides) config.sliding_window = 0;
  if (slides && config.sliding_window < 1) return invalid("sliding_window is missing");

  std::vector<int32_t>& stops = config.eos_token_ids;
  // The published vocabulary: its end of text and end of turn always stop, whatever a file says.
  if (config.vocab_size >= 262144) stops.insert(stops.end(), {1, 106});
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  if (stops.size() > static_cast<size_t>(ConfigLimits::kStopIds)) {
    return invalid("eos_token_id: ", stops.size(), " ids in all, more than ",
                   ConfigLimits::kStopIds);
  }
  for (const int32_t id : {stops.front(), stops.back(), config.bos_token_id, config.pad_token_id}) {
    if (id < 0 || id >= config.vocab_size) {
      return invalid("token id ", id, " (eos, bos or pad) is outside the vocabulary of ",
                     config.vocab_size);
    }
  }
  return absl::OkStatus();
}

}  // namespace weightless::model
