#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weightless::model {
namespace {

const std::string kModels = std::string(WEIGHTLESS_SOURCE_DIR) + "/models/";

std::vector<float> ReadAll(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_rows() * tensor.row_size()));
  ReadRows(tensor, 0, tensor.num_rows(), values.data());
  return values;
}

TEST(CheckpointTest, ReadsADirectory) {
  const auto checkpoint = Checkpoint::Open(kModels + "tiny-gemma3");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelConfig& config = (*checkpoint)->config();
  EXPECT_EQ((*checkpoint)->name(), "tiny-gemma3");
  EXPECT_EQ(config.vocab_size, 4096);
  EXPECT_EQ(config.layers.size(), 12u);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 15}));
  EXPECT_TRUE(config.stores_norm_minus_one);
  EXPECT_EQ((*checkpoint)->tensors().size(), 2u + 12 * 13);
  std::vector<std::string> files;
  for (const auto& [name, contents] : (*checkpoint)->model_files()) files.push_back(name);
  EXPECT_EQ(files, (std::vector<std::string>{"chat_template.jinja", "config.json",
                                             "generation_config.json", "tokenizer.json",
                                             "tokenizer.model", "tokenizer_config.json"}));
}

TEST(CheckpointTest, NamesADirectoryWrittenWithATrailingSlash) {
  const auto checkpoint = Checkpoint::Open(kModels + "tiny-gemma3/");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->name(), "tiny-gemma3");
}

TEST(CheckpointTest, GgufAndSafetensorsOfOneModelHoldTheSameValues) {
  const auto hf = Checkpoint::Open(kModels + "tiny-gemma3/model.safetensors");
  const auto gguf = Checkpoint::Open(kModels + "tiny-gemma3-bf16.gguf");
  ASSERT_TRUE(hf.ok()) << hf.status();
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ((*gguf)->name(), "tiny-gemma3-bf16");
  EXPECT_FALSE((*gguf)->config().stores_norm_minus_one);
  ASSERT_EQ((*hf)->tensors().size(), (*gguf)->tensors().size());
  for (const auto& [name, tensor] : (*hf)->tensors()) {
    const Tensor* other = (*gguf)->Find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(tensor.shape, other->shape) << name;
    std::vector<float> values = ReadAll(tensor);
    if (tensor.shape.size() == 1) {  // the norms, and only they
      for (float& value : values) value += 1;
    }
    EXPECT_EQ(values, ReadAll(*other)) << name;
  }
}

TEST(CheckpointTest, GgufAndSafetensorsOfOneModelHaveTheSameConfiguration) {
  const auto hf = Checkpoint::Open(kModels + "tiny-gemma3");
  const auto gguf = Checkpoint::Open(kModels + "tiny-gemma3-bf16.gguf");
  ASSERT_TRUE(hf.ok() && gguf.ok());
  const ModelConfig& a = (*hf)->config();
  const ModelConfig& b = (*gguf)->config();
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.max_context, b.max_context);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(static_cast<float>(a.norm_eps), static_cast<float>(b.norm_eps));
  EXPECT_EQ(a.attention_scale, b.attention_scale);
  EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].type, b.layers[i].type) << i;
    EXPECT_EQ(a.layers[i].num_heads, b.layers[i].num_heads);
    EXPECT_EQ(a.layers[i].num_kv_heads, b.layers[i].num_kv_heads);
    EXPECT_EQ(a.layers[i].head_dim, b.layers[i].head_dim);
    EXPECT_EQ(a.layers[i].intermediate_size, b.layers[i].intermediate_size);
    EXPECT_EQ(a.layers[i].rope_theta, b.layers[i].rope_theta);
    EXPECT_EQ(a.layers[i].rope_factor, b.layers[i].rope_factor);
  }
}

}  // namespace
}  // namespace weightless::model
