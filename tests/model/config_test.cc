#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/concat.h"

namespace weightless::model {
namespace {

using ::testing::HasSubstr;

std::vector<int> FullLayers(const ModelConfig& config) {
  std::vector<int> full;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].type == LayerType::kFull) full.push_back(static_cast<int>(i));
  }
  return full;
}

// A small model; `fields` are more members.
std::string Small(const std::string& fields) {
  return R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
             "num_hidden_layers": 4, "vocab_size": 1000)" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

ModelConfig Parse(const std::string& json) {
  const auto config = ParseConfigJson(json, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

absl::Status Error(const std::string& json) {
  return ParseConfigJson(json, "dir/config.json").status();
}

struct Size {
  const char* name;
  const char* json;
  const char* architecture;
  int hidden, inner, layers, heads, kv_heads, head_dim, window, context, vocab;
  std::vector<int> full;
  double scalar, factor;
};

// As published: the three large ones omit every field equal to its default.
const Size kSizes[] = {
    {"270M",
     R"({"_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"],
           "attention_bias": false, "attn_logit_softcapping": null, "bos_token_id": 2,
           "eos_token_id": 1, "final_logit_softcapping": null, "head_dim": 256,
           "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640,
           "intermediate_size": 2048, "max_position_embeddings": 32768,
           "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 18,
           "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
           "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null,
           "rope_theta": 1000000.0, "sliding_window": 512, "torch_dtype": "bfloat16",
           "use_bidirectional_attention": false, "vocab_size": 262144})",
     "Gemma3ForCausalLM",
     640,
     2048,
     18,
     4,
     1,
     256,
     512,
     32768,
     262144,
     {5, 11, 17},
     256,
     1},
    {"1B",
     R"({"architectures": ["Gemma3ForCausalLM"], "eos_token_id": [1, 106], "head_dim": 256,
           "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
           "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
           "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
           "rope_local_base_freq": 10000, "rope_theta": 1000000, "sliding_window": 512,
           "sliding_window_pattern": 6, "vocab_size": 262144})",
     "Gemma3ForCausalLM",
     1152,
     6912,
     26,
     4,
     1,
     256,
     512,
     32768,
     262144,
     {5, 11, 17, 23},
     256,
     1},
    {"4B",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
           "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
           "mm_tokens_per_image": 256, "model_type": "gemma3",
           "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
             "model_type": "gemma3_text", "num_hidden_layers": 34,
             "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
           "torch_dtype": "bfloat16",
           "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}})",
     "Gemma3ForConditionalGeneration",
     2560,
     10240,
     34,
     8,
     4,
     256,
     1024,
     131072,
     262208,
     {5, 11, 17, 23, 29},
     256,
     8},
    {"12B",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
           "model_type": "gemma3",
           "text_config": {"hidden_size": 3840, "intermediate_size": 15360,
             "model_type": "gemma3_text", "num_attention_heads": 16, "num_hidden_layers": 48,
             "num_key_value_heads": 8, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
             "sliding_window": 1024}})",
     "Gemma3ForConditionalGeneration",
     3840,
     15360,
     48,
     16,
     8,
     256,
     1024,
     131072,
     262208,
     {5, 11, 17, 23, 29, 35, 41, 47},
     256,
     8},
    {"27B",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
           "model_type": "gemma3",
           "text_config": {"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
             "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
             "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
             "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})",
     "Gemma3ForConditionalGeneration",
     5376,
     21504,
     62,
     32,
     16,
     128,
     1024,
     131072,
     262208,
     {5, 11, 17, 23, 29, 35, 41, 47, 53, 59},
     168,
     8},
};

TEST(ConfigTest, ReadsEveryPublishedSize) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.name);
    const ModelConfig config = Parse(size.json);
    EXPECT_EQ(config.architecture, size.architecture);
    EXPECT_EQ(config.hidden_size, size.hidden);
    EXPECT_EQ(config.sliding_window, size.window);
    EXPECT_EQ(config.max_context, size.context);
    EXPECT_EQ(config.vocab_size, size.vocab);
    EXPECT_EQ(config.norm_eps, 1e-6);
    EXPECT_DOUBLE_EQ(config.attention_scale, std::pow(size.scalar, -0.5));
    EXPECT_TRUE(config.tied_head);
    EXPECT_TRUE(config.stores_norm_minus_one);
    EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 106}));
    EXPECT_EQ(config.bos_token_id, 2);
    EXPECT_EQ(config.pad_token_id, 0);
    ASSERT_EQ(static_cast<int>(config.layers.size()), size.layers);
    EXPECT_EQ(FullLayers(config), size.full);
    for (const LayerConfig& layer : config.layers) {
      EXPECT_EQ(layer.num_heads, size.heads);
      EXPECT_EQ(layer.num_kv_heads, size.kv_heads);
      EXPECT_EQ(layer.head_dim, size.head_dim);
      EXPECT_EQ(layer.intermediate_size, size.inner);
      const bool full = layer.type == LayerType::kFull;
      EXPECT_EQ(layer.rope_theta, full ? 1e6 : 1e4);
      EXPECT_EQ(layer.rope_factor, full ? size.factor : 1);
    }
  }
}

TEST(ConfigTest, AbsentFieldsHaveTheDefaultsOfTheClass) {
  const ModelConfig config = Parse(R"({"model_type": "gemma3_text"})");
  EXPECT_EQ(config.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.hidden_size, 2304);
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_EQ(config.max_context, 131072);
  EXPECT_EQ(config.layers.size(), 26u);
  EXPECT_EQ(config.layers[0].num_heads, 8);
  EXPECT_EQ(config.layers[0].num_kv_heads, 4);
  EXPECT_EQ(config.layers[0].head_dim, 256);
  EXPECT_EQ(config.layers[0].intermediate_size, 9216);
  EXPECT_EQ(config.attention_scale, 0.0625);
}

TEST(ConfigTest, TextConfigCoversTheTopLevel) {
  const ModelConfig config = Parse(
      R"({"architectures": ["Gemma3ForConditionalGeneration"], "hidden_size": 64,
          "vocab_size": 500, "num_hidden_layers": 3, "sliding_window": 7,
          "text_config": {"hidden_size": 32, "num_hidden_layers": 2, "sliding_window": null}})");
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.layers.size(), 2u);
  EXPECT_EQ(config.sliding_window, 7);
}

TEST(ConfigTest, LayerPatternHasThreeSpellings) {
  EXPECT_EQ(FullLayers(Parse(Small(R"("sliding_window_pattern": 2)"))), (std::vector<int>{1, 3}));
  EXPECT_EQ(FullLayers(Parse(Small(R"("_sliding_window_pattern": 3)"))), (std::vector<int>{2}));
  EXPECT_EQ(FullLayers(Parse(Small(
                R"("sliding_window_pattern": 2, "layer_types": ["full_attention",
                   "sliding_attention", "sliding_attention", "full_attention"])"))),
            (std::vector<int>{0, 3}));
}

TEST(ConfigTest, NoWindowIsLeftWhenNoLayerSlides) {
  EXPECT_EQ(Parse(Small(R"("sliding_window_pattern": 1, "sliding_window": 9)")).sliding_window, 0);
}

struct Rope {
  double full_theta, full_factor, sliding_theta, sliding_factor;
  bool operator==(const Rope&) const = default;
};

Rope RopeOf(const std::string& fields) {
  const ModelConfig config = Parse(Small(R"("sliding_window_pattern": 2, )" + fields));
  const LayerConfig& sliding = config.layers[0];
  const LayerConfig& full = config.layers[1];
  return {full.rope_theta, full.rope_factor, sliding.rope_theta, sliding.rope_factor};
}

TEST(ConfigTest, RopeIsReadFromOldNewAndMixedForms) {
  EXPECT_EQ(RopeOf(R"("rope_theta": 5e5, "rope_local_base_freq": 2e4,
                      "rope_scaling": {"type": "linear", "factor": 4})"),
            (Rope{5e5, 4, 2e4, 1}));
  EXPECT_EQ(RopeOf(R"("rope_parameters": {
                        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 3e4}})"),
            (Rope{5e5, 8, 3e4, 1}));
  EXPECT_EQ(RopeOf(R"("rope_theta": 5e5, "rope_local_base_freq": 2e4,
                      "rope_parameters": {"rope_type": "linear", "factor": 2.0})"),
            (Rope{5e5, 2, 2e4, 1}));
  EXPECT_EQ(RopeOf(R"("rope_parameters": {"full_attention": {"rope_theta": 7e5},
                                          "sliding_attention": null}, "rope_scaling": null)"),
            (Rope{7e5, 1, 1e4, 1}));
  EXPECT_EQ(RopeOf(R"("rope_scaling": {"rope_type": "default"})"), (Rope{1e6, 1, 1e4, 1}));
}

TEST(ConfigTest, SmallVocabulariesKeepTheirOwnStopIds) {
  EXPECT_EQ(Parse(Small(R"("eos_token_id": [15, 1, 15])")).eos_token_ids,
            (std::vector<int32_t>{1, 15}));
  EXPECT_EQ(Parse(Small("")).eos_token_ids, (std::vector<int32_t>{1}));
}

TEST(ConfigTest, GenerationConfigAddsStopIds) {
  ModelConfig config = Parse(Small(R"("eos_token_id": 15)"));
  EXPECT_TRUE(MergeGenerationConfig(R"({"eos_token_id": [1, 15, 20]})", "g", config).ok());
  EXPECT_TRUE(MergeGenerationConfig("{}", "g", config).ok());
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 15, 20}));
  const absl::Status status = MergeGenerationConfig(R"({"eos_token_id": 1000})", "g.json", config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("g.json: token id 1000"));
}

// Of all fields and files together: a plan has room for so many beside those of a request.
TEST(ConfigTest, StopIdsAreBounded) {
  std::string ids = "2";
  for (int id = 3; id <= 25; ++id) ids += Concat(",", id);
  ModelConfig config = Parse(Small(Concat("\"eos_token_id\": [", ids, "]")));
  EXPECT_EQ(config.eos_token_ids.size(), 24u);
  const absl::Status status = MergeGenerationConfig(R"({"eos_token_id": 26})", "g.json", config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("g.json: eos_token_id: 25 ids in all"));
}

TEST(ConfigTest, UnsupportedModelsAndFeaturesAreNamed) {
  const struct {
    std::string json;
    const char* message;
  } kCases[] = {
      {R"({"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"})",
       "Gemma 4 is not supported"},
      {R"({"architectures": ["Gemma4ForCausalLM"]})", "Gemma 4 is not supported"},
      {R"({"model_type": "gemma4_unified"})", "Gemma 4 is not supported"},
      {R"({"architectures": ["LlamaForCausalLM"]})", "LlamaForCausalLM"},
      {R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "llama"})", "llama"},
      {Small(R"("attn_logit_softcapping": 50.0)"), "attn_logit_softcapping"},
      {Small(R"("final_logit_softcapping": 30.0)"), "final_logit_softcapping"},
      {Small(R"("attention_bias": true)"), "attention_bias"},
      {Small(R"("use_bidirectional_attention": true)"), "use_bidirectional_attention"},
      {Small(R"("use_bidirectional_attention": "all")"), "use_bidirectional_attention"},
      {Small(R"("hidden_activation": "silu")"), "silu"},
      {Small(R"("quantization_config": {})"), "quantization_config"},
      {Small(R"("rope_scaling": {"rope_type": "yarn", "factor": 8})"), "yarn"},
      {Small(R"("rope_parameters": {"full_attention": {"rope_type": "proportional"}})"),
       "rope_parameters.full_attention.rope_type \"proportional\""},
      {Small(R"("rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25}})"),
       "partial_rotary_factor"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = Error(test.json);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << test.json << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("dir/config.json: "));
  }
}

TEST(ConfigTest, BadValuesAreRefusedByFieldValueAndLimit) {
  const struct {
    std::string json;
    const char* message;
  } kCases[] = {
      {"[]", "not a JSON object"},
      {"{", "not valid JSON"},
      {"{}", "neither architectures nor model_type"},
      {R"({"architectures": []})", "architectures is not a list"},
      {R"({"model_type": 3})", "model_type is not a string"},
      {R"({"model_type": "gemma3", "text_config": 3})", "text_config is not an object"},
      {Small(R"("hidden_size": 0)"), "hidden_size 0 is not between 1 and 65536"},
      {Small(R"("hidden_size": 65537)"), "hidden_size 65537 is not between 1 and 65536"},
      {Small(R"("hidden_size": "640")"), "hidden_size is not a number"},
      {Small(R"("hidden_size": 640.5)"), "hidden_size 640.5 is not an integer"},
      {Small(R"("hidden_size": 1e300)"), "hidden_size 1e+300 is not between"},
      {Small(R"("hidden_size": 123456789012)"), "hidden_size 123456789012 is not between"},
      {R"({"model_type": "gemma3_text", "num_hidden_layers": 1025})", "num_hidden_layers 1025"},
      {R"({"model_type": "gemma3_text", "vocab_size": 4194305})", "vocab_size"},
      {Small(R"("num_attention_heads": -4)"), "num_attention_heads -4"},
      {Small(R"("num_attention_heads": 6, "num_key_value_heads": 4)"),
       "heads 6 is not a multiple of the 4 kv heads"},
      {Small(R"("head_dim": 255)"), "head_dim 255 is not a multiple of 16"},
      {Small(R"("head_dim": 8)"), "head_dim 8 is not a multiple of 16"},
      {Small(R"("max_position_embeddings": 1048577)"), "is not between 1 and 1048576"},
      {Small(R"("sliding_window": 0)"), "sliding_window 0"},
      {Small(R"("sliding_window_pattern": 0)"), "sliding_window_pattern 0"},
      {Small(R"("layer_types": ["full_attention"])"), "layer_types has 1 entries"},
      {Small(R"("layer_types": ["a", "b", "c", "d"])"), "layer_types[0]"},
      {Small(R"("rms_norm_eps": 0)"), "rms_norm_eps 0"},
      {Small(R"("query_pre_attn_scalar": -1)"), "query_pre_attn_scalar -1"},
      {Small(R"("rope_theta": 0)"), "rope_theta 0"},
      {Small(R"("rope_scaling": {"rope_type": "linear"})"), "rope_scaling.factor is missing"},
      {Small(R"("rope_scaling": {"factor": 8})"), "factor is given without a rope_type"},
      {Small(R"("rope_scaling": 8)"), "rope_scaling is not an object"},
      {Small(R"("eos_token_id": 1000)"), "token id 1000 (eos, bos or pad) is outside"},
      {Small(R"("eos_token_id": "x")"), "eos_token_id is not a number"},
      {Small(R"("bos_token_id": -1)"), "bos_token_id -1"},
      {Small(R"("tie_word_embeddings": 1)"), "tie_word_embeddings is not a boolean"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = Error(test.json);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.json << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("dir/config.json: "));
  }
}

}  // namespace
}  // namespace weightless::model
