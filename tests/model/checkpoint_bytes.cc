#include "tests/model/checkpoint_bytes.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/concat.h"

namespace weightless::model {
namespace {

constexpr int kHidden = 32;
constexpr int kInner = 64;
constexpr int kHeadDim = 16;
constexpr int kNumLayers = 2;
constexpr int kVocab = 8;

std::string GgufString(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

struct TinyTensor {
  std::string name;
  std::string gguf_name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::vector<TinyTensor> AllTensors() {
  std::vector<TinyTensor> tensors = {
      {"embed_tokens.weight", "token_embd.weight", {kVocab, kHidden}, {}},
      {"norm.weight", "output_norm.weight", {kHidden}, {}},
  };
  for (int i = 0; i < kNumLayers; ++i) {
    const std::string hf = Concat("layers.", i, ".");
    const std::string gguf = Concat("blk.", i, ".");
    const auto add = [&](const char* name, const char* gguf_name, std::vector<int64_t> shape) {
      tensors.push_back(
          {hf + name + ".weight", gguf + gguf_name + ".weight", std::move(shape), {}});
    };
    add("input_layernorm", "attn_norm", {kHidden});
    add("post_attention_layernorm", "post_attention_norm", {kHidden});
    add("pre_feedforward_layernorm", "ffn_norm", {kHidden});
    add("post_feedforward_layernorm", "post_ffw_norm", {kHidden});
    add("self_attn.q_proj", "attn_q", {2 * kHeadDim, kHidden});
    add("self_attn.k_proj", "attn_k", {kHeadDim, kHidden});
    add("self_attn.v_proj", "attn_v", {kHeadDim, kHidden});
    add("self_attn.o_proj", "attn_output", {kHidden, 2 * kHeadDim});
    add("self_attn.q_norm", "attn_q_norm", {kHeadDim});
    add("self_attn.k_norm", "attn_k_norm", {kHeadDim});
    add("mlp.gate_proj", "ffn_gate", {kInner, kHidden});
    add("mlp.up_proj", "ffn_up", {kInner, kHidden});
    add("mlp.down_proj", "ffn_down", {kHidden, kInner});
  }
  float next = 0;
  for (TinyTensor& tensor : tensors) {
    int64_t size = 1;
    for (const int64_t dim : tensor.shape) size *= dim;
    for (int64_t i = 0; i < size; ++i) tensor.values.push_back(next += 0.125f);
  }
  return tensors;
}

std::string FloatBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace

std::string SafetensorsFile(std::string_view header, std::string_view data) {
  return Raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

std::string SafetensorsFile(const std::vector<TensorBytes>& tensors) {
  std::string data;
  std::vector<std::string> entries = {R"("__metadata__": {"format": "pt"})"};
  for (const TensorBytes& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.data;
    entries.push_back(Concat("\"", tensor.name, "\": {\"dtype\": \"", tensor.dtype,
                             "\", \"shape\": [", absl::StrJoin(tensor.shape, ", "),
                             "], \"data_offsets\": [", begin, ", ", data.size(), "]}"));
  }
  std::string header = Concat("{", absl::StrJoin(entries, ", "), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return SafetensorsFile(header, data);
}

void GgufWriter::AddRaw(std::string_view key, uint32_t type, std::string_view value) {
  metadata_ += GgufString(key) + Raw(type) + std::string(value);
  ++num_keys;
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddRaw(key, 8, GgufString(value));
}

void GgufWriter::AddBools(std::string_view key, const std::vector<bool>& values) {
  std::string bytes = Raw<uint32_t>(7) + Raw<uint64_t>(values.size());
  for (const bool value : values) bytes += value ? '\1' : '\0';
  AddRaw(key, 9, bytes);
}

void GgufWriter::AddInts(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = Raw<uint32_t>(5) + Raw<uint64_t>(values.size());
  for (const int32_t value : values) bytes += Raw(value);
  AddRaw(key, 9, bytes);
}

void GgufWriter::AddFloats(std::string_view key, const std::vector<float>& values) {
  AddRaw(key, 9, Raw<uint32_t>(6) + Raw<uint64_t>(values.size()) + FloatBytes(values));
}

void GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = Raw<uint32_t>(8) + Raw<uint64_t>(values.size());
  for (const std::string& value : values) bytes += GgufString(value);
  AddRaw(key, 9, bytes);
}

void GgufWriter::AddTensorAt(std::string_view name, const std::vector<uint64_t>& dims,
                             uint32_t type, uint64_t offset) {
  directory_ += GgufString(name) + Raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) directory_ += Raw(dim);
  directory_ += Raw(type) + Raw(offset);
  ++num_tensors;
}

void GgufWriter::AddTensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                           std::string_view data) {
  data_.resize((data_.size() + 31) / 32 * 32);
  AddTensorAt(name, dims, type, data_.size());
  data_ += data;
}

std::string GgufWriter::File() const {
  std::string file =
      magic + Raw(version) + Raw(num_tensors) + Raw(num_keys) + metadata_ + directory_;
  file.resize((file.size() + 31) / 32 * 32);
  return file + data_;
}

std::string TinyConfigJson() {
  return R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
             "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
             "intermediate_size": 64, "num_hidden_layers": 2, "sliding_window_pattern": 2,
             "sliding_window": 8, "vocab_size": 8, "max_position_embeddings": 64,
             "query_pre_attn_scalar": 16})";
}

std::vector<TensorBytes> TinyTensors(std::string_view prefix) {
  std::vector<TensorBytes> tensors;
  for (const TinyTensor& tensor : AllTensors()) {
    tensors.push_back(
        {Concat(prefix, tensor.name), "F32", tensor.shape, FloatBytes(tensor.values)});
  }
  return tensors;
}

GgufWriter TinyGgufMetadata(const std::vector<std::string_view>& skip) {
  GgufWriter writer;
  const auto wanted = [&skip](std::string_view key) {
    return std::find(skip.begin(), skip.end(), key) == skip.end();
  };
  if (wanted("general.architecture")) writer.AddString("general.architecture", "gemma3");
  const auto add = [&](const char* field, uint32_t value) {
    const std::string key = Concat("gemma3.", field);
    if (wanted(key)) writer.AddU32(key, value);
  };
  add("block_count", kNumLayers);
  add("context_length", 64);
  add("embedding_length", kHidden);
  add("feed_forward_length", kInner);
  add("attention.head_count", 2);
  add("attention.head_count_kv", 1);
  add("attention.key_length", kHeadDim);
  add("attention.value_length", kHeadDim);
  add("attention.sliding_window", 8);
  add("attention.sliding_window_pattern", 2);
  const std::string eps = "gemma3.attention.layer_norm_rms_epsilon";
  if (wanted(eps)) writer.AddF32(eps, 1e-6f);
  return writer;
}

void AddTinyGgufTensors(GgufWriter& writer) {
  for (TinyTensor& tensor : AllTensors()) {
    if (tensor.shape.size() == 1) {
      for (float& value : tensor.values) value += 1;
    }
    const std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    writer.AddTensor(tensor.gguf_name, dims, 0, FloatBytes(tensor.values));
  }
}

}  // namespace weightless::model
