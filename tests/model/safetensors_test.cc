#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/model/checkpoint_bytes.h"

namespace weightless::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The message of the error, or "" when the file is accepted.
std::string Refusal(std::string_view file) {
  TensorMap tensors;
  const absl::Status status = AddSafetensors(file, "m.safetensors", tensors);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::vector<std::string> NamesIn(const std::vector<TensorBytes>& tensors) {
  TensorMap map;
  const std::string file = SafetensorsFile(tensors);
  EXPECT_TRUE(AddSafetensors(file, "m.safetensors", map).ok());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : map) names.push_back(name);
  return names;
}

TEST(SafetensorsTest, EveryPrefixFamilyHasTheSameCanonicalNames) {
  for (const std::string prefix : {"model.", "language_model.model.", "model.language_model."}) {
    EXPECT_THAT(NamesIn({{prefix + "norm.weight", "F32", {1}, Raw(1.0f)},
                         {prefix + "layers.3.mlp.up_proj.weight", "F32", {1, 1}, Raw(2.0f)}}),
                ElementsAre("layers.3.mlp.up_proj.weight", "norm.weight"));
  }
  EXPECT_THAT(NamesIn({{"lm_head.weight", "F32", {1, 1}, Raw(1.0f)}}),
              ElementsAre("lm_head.weight"));
  EXPECT_THAT(NamesIn({{"language_model.lm_head.weight", "F32", {1, 1}, Raw(1.0f)}}),
              ElementsAre("lm_head.weight"));
}

TEST(SafetensorsTest, TowersOfAnyTypeAreIgnored) {
  EXPECT_THAT(NamesIn({{"vision_tower.ids", "I64", {1}, Raw<int64_t>(1)},
                       {"model.norm.weight", "F32", {1}, Raw(1.0f)},
                       {"model.vision_tower.scale", "F8_E4M3", {}, "x"},
                       {"multi_modal_projector.weight", "F32", {0, 5}, ""},
                       {"audio_tower.a.b.c", "BOOL", {1, 1, 1, 3}, "abc"},
                       {"model.embed_vision.x", "U8", {1}, "x"}}),
              ElementsAre("norm.weight"));
}

TEST(SafetensorsTest, TensorsPointIntoTheFile) {
  TensorMap tensors;
  const std::string file = SafetensorsFile(
      {{"model.norm.weight", "F32", {2}, Raw(1.5f) + Raw(-2.0f)},
       {"model.embed_tokens.weight", "BF16", {2, 1}, Raw<uint16_t>(0x3f80) + Raw<uint16_t>(0)}});
  ASSERT_TRUE(AddSafetensors(file, "m", tensors).ok());
  const Tensor& norm = tensors.at("norm.weight");
  std::vector<float> values(2);
  ReadRows(norm, 0, 1, values.data());
  EXPECT_THAT(values, ElementsAre(1.5f, -2.0f));
  ReadRows(tensors.at("embed_tokens.weight"), 0, 2, values.data());
  EXPECT_THAT(values, ElementsAre(1.0f, 0.0f));
}

TEST(SafetensorsTest, BrokenHeadersAreRefusedWithTheReason) {
  const std::string four(4, 'x');
  const auto entry = [](const std::string& fields) {
    return "{\"model.norm.weight\": {" + fields + "}}";
  };
  const struct {
    std::string file;
    const char* message;
  } kCases[] = {
      {"", "it has 0 bytes"},
      {"1234567", "it has 7 bytes"},
      {Raw<uint64_t>(9) + "{}", "header length 9 exceeds 2"},
      {Raw<uint64_t>(~uint64_t{0}) + "{}", "header length 18446744073709551615 exceeds 2"},
      {SafetensorsFile("[]", ""), "not a JSON object"},
      {SafetensorsFile("{", ""), "not valid JSON"},
      {SafetensorsFile(R"({"a": 1, "a": 1})", ""), "twice"},
      {SafetensorsFile(R"({"a": 1})", ""), "is not {dtype, shape, data_offsets: [2]}"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [0])"), four),
       "is not {dtype, shape, data_offsets: [2]}"},
  };
  for (const auto& test : kCases) EXPECT_THAT(Refusal(test.file), HasSubstr(test.message));
}

TEST(SafetensorsTest, BrokenEntriesAreRefusedWithTheReason) {
  const std::string four(4, 'x');
  const auto entry = [](const std::string& fields) {
    return "{\"model.norm.weight\": {" + fields + "}}";
  };
  const struct {
    std::string file;
    const char* message;
  } kCases[] = {
      {SafetensorsFile(entry(R"("dtype": "F31", "shape": [1], "data_offsets": [0, 4])"), four),
       "unknown dtype \"F31\""},
      {SafetensorsFile(entry(R"("dtype": "I32", "shape": [1], "data_offsets": [0, 4])"), four),
       "text tensors must be F32, F16 or BF16"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 4])"), four),
       "its shape needs 8 bytes"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [4, 0])"), four),
       "lies at [4, 0)"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [-4, 0])"), four),
       "data_offsets has an entry that is not a count"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1.5], "data_offsets": [0, 4])"), four),
       "shape has an entry that is not a count"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4])"), "xx"),
       "tensors end at 4 of the data, the file has 2 bytes"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4])"),
                       four + "y"),
       "the file has 5 bytes"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1], "data_offsets": [4, 8])"),
                       four + four),
       "begins at 4 of the data, the one before it ends at 0"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [0], "data_offsets": [0, 0])"), ""),
       "none of them zero"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1, 1, 1], "data_offsets": [0, 4])"),
                       four),
       "has 3 dimensions"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1],
                                "data_offsets": [0, 4])"),
                       four),
       "has 9 dimensions"},
      {SafetensorsFile(entry(R"("dtype": "F32", "shape": [4294967296, 4294967296],
                                "data_offsets": [0, 0])"),
                       ""),
       "has more than"},
      {SafetensorsFile({{"x", "U8", {1}, "x"}}), "\"x\" is not below a known prefix"},
      {SafetensorsFile(
           {{"vision_tower.a", "U8", {1}, "x"}, {"model.norm.weight", "F16", {1}, "ab"}}),
       "not a multiple of 2"},
      {SafetensorsFile({{"model.norm.weight", "F32", {1}, four},
                        {"model.language_model.norm.weight", "F32", {1}, four}}),
       "occurs twice"},
  };
  for (const auto& test : kCases) EXPECT_THAT(Refusal(test.file), HasSubstr(test.message));
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file = SafetensorsFile(TinyTensors("model."));
  ASSERT_EQ(Refusal(file), "");
  for (size_t size = 0; size < file.size(); size += size < 9000 ? 7 : 501) {
    EXPECT_NE(Refusal(std::string_view(file).substr(0, size)), "") << size;
  }
}

TEST(SafetensorsTest, FlippedHeaderBitsNeverReachOutsideTheFile) {
  const std::string file = SafetensorsFile(TinyTensors("model."));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string broken = file;
    broken[random() % 5000] ^= static_cast<char>(1 << (random() % 8));
    TensorMap tensors;
    if (!AddSafetensors(broken, "m", tensors).ok()) continue;
    for (const auto& [name, tensor] : tensors) {
      const auto* begin = reinterpret_cast<const std::byte*>(broken.data());
      ASSERT_GE(tensor.data.data(), begin);
      ASSERT_LE(tensor.data.data() + tensor.data.size(), begin + broken.size());
      ASSERT_EQ(tensor.data.size() % static_cast<size_t>(tensor.row_size()), 0u);
    }
  }
}

TEST(ShardIndexTest, NamesEachShardOnce) {
  const auto shards = ParseShardIndex(
      R"({"metadata": {}, "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors",
          "c": "m-2.safetensors"}})",
      "index.json");
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_THAT(*shards, ElementsAre("m-1.safetensors", "m-2.safetensors"));
}

TEST(ShardIndexTest, BadIndexesAreRefused) {
  for (const std::string_view json :
       {R"([])", R"({})", R"({"weight_map": {}})", R"({"weight_map": []})",
        R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": "model.bin"}})",
        R"({"weight_map": {"a": ".safetensors"}})", R"({"weight_map": {"a": "../m.safetensors"}})",
        R"({"weight_map": {"a": "/m.safetensors"}})",
        R"({"weight_map": {"a": "m\u0000.safetensors"}})"}) {
    const auto shards = ParseShardIndex(json, "index.json");
    EXPECT_EQ(shards.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(shards.status().message()), HasSubstr("index.json: ")) << json;
  }
}

}  // namespace
}  // namespace weightless::model
