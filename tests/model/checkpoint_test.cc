#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/model/checkpoint_bytes.h"

namespace weightless::model {
namespace {

const std::string kModels = std::string(WEIGHTLESS_SOURCE_DIR) + "/models/";

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A folder of its own for each test, gone afterwards.
class TempDir {
 public:
  TempDir()
      : path_(fs::path(testing::TempDir()) /
              (std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TempDir() { fs::remove_all(path_); }

  void Write(const std::string& name, std::string_view contents) const {
    std::ofstream(path_ / name, std::ios::binary) << contents;
  }
  std::string path(const std::string& name = "") const {
    return (name.empty() ? path_ : path_ / name).string();
  }

 private:
  const fs::path path_;
};

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

// The first half of the tensors in one shard, the others in the next.
void WriteShards(const TempDir& dir, const std::vector<TensorBytes>& tensors) {
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  dir.Write("m-1.safetensors", SafetensorsFile({tensors.begin(), middle}));
  dir.Write("m-2.safetensors", SafetensorsFile({middle, tensors.end()}));
  dir.Write("model.safetensors.index.json",
            R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
}

TEST(CheckpointTest, ShardsHoldTheSameAsOneFile) {
  const TempDir dir;
  dir.Write("config.json", TinyConfigJson());
  WriteShards(dir, TinyTensors("language_model.model."));
  const auto sharded = Checkpoint::Open(dir.path());
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  dir.Write("model.safetensors", SafetensorsFile(TinyTensors("model.")));
  const auto single = Checkpoint::Open(dir.path());
  ASSERT_TRUE(single.ok()) << single.status();
  ASSERT_EQ((*sharded)->tensors().size(), 28u);
  for (const auto& [name, tensor] : (*single)->tensors()) {
    EXPECT_EQ(ReadAll(tensor), ReadAll(*(*sharded)->Find(name))) << name;
  }
  EXPECT_EQ((*single)->Identity(), (*sharded)->Identity());
}

TEST(CheckpointTest, MissingFilesAreNotFound) {
  const TempDir dir;
  const auto message = [](const std::string& path) {
    const absl::Status status = Checkpoint::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message(dir.path("x")), HasSubstr("no such file or directory"));
  EXPECT_THAT(message(dir.path()), HasSubstr("config.json: no such file"));
  dir.Write("config.json", TinyConfigJson());
  EXPECT_THAT(message(dir.path()), HasSubstr("neither model.safetensors nor"));
  dir.Write("model.safetensors.index.json", R"({"weight_map": {"a": "m-1.safetensors"}})");
  EXPECT_THAT(message(dir.path()), HasSubstr("m-1.safetensors"));
}

TEST(CheckpointTest, FilesThatCannotBeACheckpointAreRefused) {
  const TempDir dir;
  const auto message = [](const std::string& path) {
    const absl::Status status = Checkpoint::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  dir.Write("model.bin", "x");
  EXPECT_THAT(message(dir.path("model.bin")), HasSubstr("neither a directory nor a .gguf"));
  dir.Write("empty.gguf", "");
  EXPECT_THAT(message(dir.path("empty.gguf")), HasSubstr("the file is empty"));
  dir.Write("config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(message(dir.path()), HasSubstr("1048577 bytes exceed the limit of 1048576"));
  fs::create_directory(dir.path("folder.gguf"));
  EXPECT_EQ(Checkpoint::Open(dir.path("folder.gguf")).status().code(), absl::StatusCode::kNotFound);
}

// The status of the tiny model after a change of its tensors and configuration.
template <typename Change>
absl::Status OpenChanged(Change change) {
  const TempDir dir;
  std::string config = TinyConfigJson();
  std::vector<TensorBytes> tensors = TinyTensors("model.");
  change(config, tensors);
  dir.Write("config.json", config);
  dir.Write("model.safetensors", SafetensorsFile(tensors));
  return Checkpoint::Open(dir.path()).status();
}

TEST(CheckpointTest, TheTensorsMustBeThoseOfTheConfiguration) {
  using Tensors = std::vector<TensorBytes>;
  const std::string head(4 * 8 * 32, '\0');
  const auto message = [](auto change) { return std::string(OpenChanged(change).message()); };
  EXPECT_EQ(message([](std::string&, Tensors&) {}), "");
  EXPECT_THAT(message([](std::string&, Tensors& t) { t.pop_back(); }),
              HasSubstr("layers.1.mlp.down_proj.weight is missing"));
  EXPECT_THAT(message([](std::string&, Tensors& t) { t.erase(t.begin()); }),
              HasSubstr("embed_tokens.weight is missing"));
  EXPECT_THAT(
      message([](std::string&, Tensors& t) { std::swap(t.back().shape[0], t.back().shape[1]); }),
      HasSubstr("has shape [64, 32], the configuration calls for [32, 64]"));
  EXPECT_THAT(message([](std::string&, Tensors& t) {
                t.push_back({"model.layers.1.self_attn.q_proj.bias", "F32", {1}, Raw(1.0f)});
              }),
              HasSubstr("\"layers.1.self_attn.q_proj.bias\" is not part of a Gemma 3"));
  EXPECT_THAT(message([](std::string&, Tensors& t) {
                t.push_back({"model.layers.2.input_layernorm.weight", "F32", {1}, Raw(1.0f)});
              }),
              HasSubstr("\"layers.2.input_layernorm.weight\" is not part of"));
  // A head beside a tied embedding is ignored; an untied one is required.
  EXPECT_EQ(message([&](std::string&, Tensors& t) {
              t.push_back({"lm_head.weight", "F32", {8, 32}, head});
            }),
            "");
  const auto untie = [](std::string& config) {
    config.insert(config.size() - 1, R"(, "tie_word_embeddings": false)");
  };
  EXPECT_THAT(message([&](std::string& config, Tensors&) { untie(config); }),
              HasSubstr("lm_head.weight is missing"));
  EXPECT_EQ(message([&](std::string& config, Tensors& t) {
              untie(config);
              t.push_back({"lm_head.weight", "F32", {8, 32}, head});
            }),
            "");
}

TEST(CheckpointTest, TheVocabularyIsTheEmbeddingsRows) {
  const TempDir dir;
  std::string config = TinyConfigJson();
  config.replace(config.find("\"vocab_size\": 8"), 15, "\"vocab_size\": 9");
  dir.Write("config.json", config);
  dir.Write("model.safetensors", SafetensorsFile(TinyTensors("model.")));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->config().vocab_size, 8);
}

TEST(CheckpointTest, IdentityTellsWeightsAndConfigurationsApart) {
  const auto identity = [](float change, const char* window) {
    const TempDir dir;
    std::string config = TinyConfigJson();
    config.replace(config.find("\"sliding_window\": 8") + 18, 1, window);
    std::vector<TensorBytes> tensors = TinyTensors("model.");
    tensors.back().data.replace(100, 4, Raw(change));
    dir.Write("config.json", config);
    dir.Write("model.safetensors", SafetensorsFile(tensors));
    const auto checkpoint = Checkpoint::Open(dir.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? (*checkpoint)->Identity() : "";
  };
  const std::string first = identity(1, "8");
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(identity(1, "8"), first);
  EXPECT_NE(identity(2, "8"), first);
  EXPECT_NE(identity(1, "9"), first);
}

TEST(CheckpointTest, AGgufFileGivesItsHeaderToRouters) {
  const TempDir dir;
  GgufWriter writer = TinyGgufMetadata();
  AddTinyGgufTensors(writer);
  const std::string file = writer.File();
  dir.Write("tiny.gguf", file);
  const auto checkpoint = Checkpoint::Open(dir.path("tiny.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->name(), "tiny");
  ASSERT_EQ((*checkpoint)->model_files().size(), 1u);
  const std::string& header = (*checkpoint)->model_files().at("gguf_header");
  EXPECT_EQ(file.substr(0, header.size()), header);
  EXPECT_LT(file.size() - header.size(), file.size());
}

}  // namespace
}  // namespace weightless::model
