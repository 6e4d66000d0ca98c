#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "model/tensor_layout.h"
#include "tests/model/checkpoint_bytes.h"

namespace weightless::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All that opening a GGUF file does, over bytes.
absl::StatusOr<ModelConfig> Load(std::string_view file, TensorMap& tensors) {
  auto header = GgufHeader::Parse(file, "m.gguf");
  if (!header.ok()) return header.status();
  auto config = GgufConfig(*header);
  if (!config.ok()) return config;
  absl::Status status = AddGgufTensors(*header, file, tensors);
  if (status.ok()) status = CheckTensors("m.gguf", DenseProjections(*config), *config, tensors);
  if (!status.ok()) return status;
  return config;
}

// The tiny model after a change of its metadata.
template <typename Change>
absl::StatusOr<ModelConfig> LoadWith(std::string_view without, Change change) {
  GgufWriter writer = TinyGgufMetadata({without});
  change(writer);
  AddTinyGgufTensors(writer);
  TensorMap tensors;
  return Load(writer.File(), tensors);
}

std::vector<bool> Slides(const absl::StatusOr<ModelConfig>& config) {
  std::vector<bool> slides;
  EXPECT_TRUE(config.ok()) << config.status();
  if (!config.ok()) return slides;
  for (const LayerConfig& layer : config->layers) {
    slides.push_back(layer.type == LayerType::kSliding);
  }
  return slides;
}

TEST(GgufTest, ReadsTheConfiguration) {
  const auto config = LoadWith("", [](GgufWriter&) {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(config->vocab_size, 8);
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->max_context, 64);
  EXPECT_EQ(config->sliding_window, 8);
  EXPECT_FLOAT_EQ(static_cast<float>(config->norm_eps), 1e-6f);
  EXPECT_EQ(config->attention_scale, 0.25);
  EXPECT_TRUE(config->tied_head);
  EXPECT_FALSE(config->stores_norm_minus_one);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1));
  ASSERT_EQ(config->layers.size(), 2u);
  const LayerConfig& full = config->layers[1];
  EXPECT_EQ(full.num_heads, 2);
  EXPECT_EQ(full.num_kv_heads, 1);
  EXPECT_EQ(full.head_dim, 16);
  EXPECT_EQ(full.intermediate_size, 64);
  EXPECT_EQ(full.rope_theta, 1e6);
  EXPECT_EQ(full.rope_factor, 1);
  EXPECT_EQ(config->layers[0].rope_theta, 1e4);
}

TEST(GgufTest, LayerPatternIsAPeriodAListOrSix) {
  const std::string key = "gemma3.attention.sliding_window_pattern";
  EXPECT_THAT(Slides(LoadWith("", [](GgufWriter&) {})), ElementsAre(true, false));
  EXPECT_THAT(Slides(LoadWith(key, [](GgufWriter&) {})), ElementsAre(true, true));
  EXPECT_THAT(Slides(LoadWith(key,
                              [&](GgufWriter& w) {
                                w.AddBools(key, {false, true});
                              })),
              ElementsAre(false, true));
  EXPECT_THAT(Slides(LoadWith(key,
                              [&](GgufWriter& w) {
                                w.AddInts(key, {1, 0});
                              })),
              ElementsAre(true, false));
}

TEST(GgufTest, RopeScalesFullLayersOnly) {
  for (const char* type : {"linear", "none", ""}) {
    const auto config = LoadWith("", [&](GgufWriter& w) {
      w.AddF32("gemma3.rope.freq_base", 500000);
      w.AddF32("gemma3.rope.scaling.factor", 8);
      if (*type != 0) w.AddString("gemma3.rope.scaling.type", type);
    });
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->layers[0].rope_factor, 1);
    EXPECT_EQ(config->layers[0].rope_theta, 1e4);
    EXPECT_EQ(config->layers[1].rope_factor, std::string(type) == "none" ? 1 : 8);
    EXPECT_EQ(config->layers[1].rope_theta, 5e5);
  }
}

TEST(GgufTest, LocalThetaHasTwoSpellings) {
  for (const char* key : {"gemma3.rope.freq_base_swa", "gemma3.rope.local.freq_base"}) {
    const auto config = LoadWith("", [&](GgufWriter& w) { w.AddF32(key, 20000); });
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->layers[0].rope_theta, 2e4);
  }
}

TEST(GgufTest, TheQueryScaleOfSixtyTwoLayersIsByHiddenSize) {
  GgufWriter writer = TinyGgufMetadata({"gemma3.block_count", "gemma3.embedding_length"});
  writer.AddU32("gemma3.block_count", 62);
  writer.AddU32("gemma3.embedding_length", 50);
  writer.AddTensorAt("token_embd.weight", {32, 8}, 0, 0);
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok());
  const auto config = GgufConfig(*header);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->attention_scale, 0.2);  // 1 / sqrt(50 / 2 heads), not 1 / sqrt(head_dim 16)
  EXPECT_EQ(config->layers.size(), 62u);
}

TEST(GgufTest, StopIdsAreAllThatTheFileNames) {
  const auto config = LoadWith("", [](GgufWriter& w) {
    w.AddU32("tokenizer.ggml.eos_token_id", 5);
    w.AddU32("tokenizer.ggml.eot_token_id", 6);
    w.AddStrings("tokenizer.ggml.tokens", {"<pad>", "<eos>", "a", "<end_of_turn>"});
  });
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 3, 5, 6));
}

TEST(GgufTest, AnOutputMatrixUntiesTheHead) {
  GgufWriter writer = TinyGgufMetadata();
  AddTinyGgufTensors(writer);
  writer.AddTensor("output.weight", {32, 8}, 1, std::string(2 * 32 * 8, '\0'));
  TensorMap tensors;
  const std::string file = writer.File();
  const auto config = Load(file, tensors);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tied_head);
  EXPECT_EQ(tensors.at("lm_head.weight").type, StorageType::kF16);
}

TEST(GgufTest, VisionTensorsOfAnyTypeAreIgnored) {
  GgufWriter writer = TinyGgufMetadata();
  writer.AddTensor("v.patch_embd.weight", {14, 14, 3, 8}, 99, std::string(12345, '\0'));
  writer.AddTensor("mm.input_projection.weight", {4}, 99, "abcd");
  AddTinyGgufTensors(writer);
  TensorMap tensors;
  EXPECT_TRUE(Load(writer.File(), tensors).ok());
  EXPECT_EQ(tensors.size(), 28u);
}

TEST(GgufTest, UnsupportedModelsAndFeaturesAreNamed) {
  const struct {
    const char* without;
    const char* key;
    const char* text;  // a string value, or null for the number 30
    const char* message;
  } kCases[] = {
      {"general.architecture", "general.architecture", "gemma4", "Gemma 4 is not supported"},
      {"general.architecture", "general.architecture", "llama", "\"llama\" is not supported"},
      {"", "gemma3.rope.scaling.type", "yarn", "\"yarn\" is not supported"},
      {"", "gemma3.final_logit_softcapping", nullptr, "final_logit_softcapping 30 is set"},
      {"", "gemma3.attn_logit_softcapping", nullptr, "attn_logit_softcapping 30 is set"},
      {"", "split.count", nullptr, "split.count 30"},
  };
  for (const auto& test : kCases) {
    const auto config = LoadWith(test.without, [&](GgufWriter& w) {
      test.text != nullptr ? w.AddString(test.key, test.text) : w.AddU32(test.key, 30);
    });
    EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented) << config.status();
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(test.message));
  }
}

TEST(GgufTest, BadMetadataIsRefusedByKeyValueAndLimit) {
  for (const char* key :
       {"general.architecture", "gemma3.block_count", "gemma3.context_length",
        "gemma3.embedding_length", "gemma3.feed_forward_length", "gemma3.attention.head_count",
        "gemma3.attention.head_count_kv", "gemma3.attention.key_length",
        "gemma3.attention.layer_norm_rms_epsilon", "gemma3.attention.sliding_window"}) {
    const auto config = LoadWith(key, [](GgufWriter&) {});
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("missing")) << key;
  }
  const struct {
    const char* key;
    uint32_t value;
    const char* message;
  } kCases[] = {
      {"gemma3.block_count", 0, "gemma3.block_count 0 is not between 1 and 1024"},
      {"gemma3.block_count", 4000000000, "gemma3.block_count 4000000000 is not between"},
      {"gemma3.block_count", 3, "layers.2.input_layernorm.weight is missing"},
      {"gemma3.embedding_length", 65537, "gemma3.embedding_length 65537"},
      {"gemma3.embedding_length", 64, "embed_tokens.weight has shape [8, 32]"},
      {"gemma3.attention.head_count", 3, "q_proj.weight has shape [32, 32]"},
      {"gemma3.attention.head_count_kv", 3, "heads 2 is not a multiple of the 3 kv heads"},
      {"gemma3.attention.value_length", 8, "attention.value_length 8 differs"},
      {"gemma3.attention.sliding_window_pattern", 0, "sliding_window_pattern 0"},
      {"gemma3.rope.freq_base", 0, "gemma3.rope.freq_base 0 is not above 0"},
      {"tokenizer.ggml.eos_token_id", 8, "token id 8"},
  };
  for (const auto& test : kCases) {
    const auto config = LoadWith(test.key, [&](GgufWriter& w) { w.AddU32(test.key, test.value); });
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << test.message;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(test.message));
  }
}

TEST(GgufTest, BadTensorsAreRefusedWithTheReason) {
  const struct {
    const char* name;
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
    const char* message;
  } kCases[] = {
      {"blk.0.attn_q.bias", {32}, 0, 0, "\"blk.0.attn_q.bias\" is not part of a Gemma 3"},
      {"blk.00.attn_q.weight", {32, 32}, 0, 0, "is not part of"},
      {"blk.1024.attn_q.weight", {32, 32}, 0, 0, "is not part of"},
      {"blk.2.attn_q.weight", {32, 32}, 0, 0, "overlaps"},
      {"output.weight", {32, 8, 2}, 0, 0, "has 3 dimensions, more than 2"},
      {"output.weight", {32, 8}, 4, 0, "unsupported ggml type 4"},
      {"output.weight", {32, 8}, 12, 0, "rows of 32 values, not a multiple of the 256 of a Q4_K"},
      {"output.weight", {32, 8}, 0, 4, "not a multiple of the alignment 32"},
      {"output.weight", {32, 8}, 0, 1u << 30, "needs 1024 bytes, the data has"},
      {"output.weight", {32, 8}, 0, ~uint64_t{31}, "needs 1024 bytes, the data has"},
      {"output.weight", {32, 1u << 30}, 0, 0, "output.weight"},
  };
  for (const auto& test : kCases) {
    GgufWriter writer = TinyGgufMetadata();
    AddTinyGgufTensors(writer);
    writer.AddTensorAt(test.name, test.dims, test.type, test.offset);
    TensorMap tensors;
    const auto config = Load(writer.File(), tensors);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << test.message;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(test.message));
  }
}

// The tiny model in which one tensor is said to be of another type or shape than its data.
absl::Status LoadTensors(const std::vector<uint64_t>& dims, uint32_t type, std::string_view data,
                         std::string_view rest = "") {
  GgufWriter writer = TinyGgufMetadata();
  writer.AddTensor("v.patch.weight", dims, type, data);
  AddTinyGgufTensors(writer);
  TensorMap tensors;
  return Load(writer.File() + std::string(rest), tensors).status();
}

TEST(GgufTest, TensorsFillTheDataSection) {
  const std::string row(128, '\0');             // 32 floats, 4 aligned units
  EXPECT_TRUE(LoadTensors({31}, 0, row).ok());  // with padding
  EXPECT_TRUE(LoadTensors({99}, 4, row).ok());  // ignored, of an unknown type
  EXPECT_TRUE(LoadTensors({8, 2, 2}, 0, row).ok());
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_EQ(message(LoadTensors({32}, 1, row)),
            "m.gguf: tensor \"token_embd.weight\" at offset 128 leaves a gap after tensor "
            "\"v.patch.weight\", which begins at 0 and by its type and shape ends at 64");
  EXPECT_EQ(message(LoadTensors({64}, 0, row)),
            "m.gguf: tensor \"token_embd.weight\" at offset 128 overlaps tensor "
            "\"v.patch.weight\", which begins at 0 and by its type and shape ends at 256");
  EXPECT_THAT(message(LoadTensors({32}, 0, row, row)),
              HasSubstr("the data goes on for 128 bytes after the last tensor "
                        "\"blk.1.ffn_down.weight\""));
}

TEST(GgufTest, FlippedHeaderBitsNeverReachOutsideTheFile) {
  GgufWriter writer = TinyGgufMetadata();
  AddTinyGgufTensors(writer);
  const std::string file = writer.File();
  const size_t header_bytes = GgufHeader::Parse(file, "m.gguf")->size_bytes();
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string broken = file;
    broken[random() % header_bytes] ^= static_cast<char>(1 << (random() % 8));
    TensorMap tensors;
    (void)Load(broken, tensors).ok();
    const auto* begin = reinterpret_cast<const std::byte*>(broken.data());
    for (const auto& [name, tensor] : tensors) {
      ASSERT_GE(tensor.data.data(), begin);
      ASSERT_LE(tensor.data.data() + tensor.data.size(), begin + broken.size());
    }
  }
}

TEST(GgufTest, EveryTruncationIsRefused) {
  GgufWriter writer = TinyGgufMetadata();
  AddTinyGgufTensors(writer);
  const std::string file = writer.File();
  for (size_t size = 0; size < file.size(); size += 97) {
    TensorMap tensors;
    EXPECT_FALSE(Load(std::string_view(file).substr(0, size), tensors).ok()) << size;
  }
}

}  // namespace
}  // namespace weightless::model
