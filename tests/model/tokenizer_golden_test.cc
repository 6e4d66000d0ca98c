// The ids of the `tokenizers` library (tests/golden/make_tokenizer_golden.py), from every source.
#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "model/checkpoint.h"
#include "tests/model/tokenizer_files.h"
#include "tests/model/tokenizer_writers.h"

namespace weightless::model {
namespace {

uint32_t Fnv1a(const std::vector<int32_t>& ids) {
  uint32_t hash = 0x811C9DC5;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x01000193;
    }
  }
  return hash;
}

boost::json::value ReadGolden() {
  return ParseJson(ReadXz(SourcePath("tests/golden/tokenizer-golden.json.xz"))).value();
}

// The generated lines, the lines of the held-out text, and that text as a whole.
std::vector<std::string> Texts(const boost::json::value& golden) {
  std::vector<std::string> texts;
  for (const auto& line : golden.at("lines").as_array()) {
    texts.emplace_back(line.as_string().data(), line.as_string().size());
  }
  const std::string heldout = ReadFile(SourcePath("tests/golden/tiny-heldout.txt"));
  for (size_t begin = 0; begin < heldout.size();) {
    const size_t end = heldout.find('\n', begin);
    texts.push_back(heldout.substr(begin, end - begin));
    begin = end + 1;
  }
  texts.push_back(heldout);
  return texts;
}

std::string WithoutSpaceMarks(std::string text) {
  for (size_t i; (i = text.find("\xE2\x96\x81")) != std::string::npos;) text.replace(i, 3, " ");
  return text;
}

void ExpectGolden(const Tokenizer& tokenizer, const char* name) {
  const boost::json::value golden = ReadGolden();
  const std::vector<std::string> texts = Texts(golden);
  const auto& hashes = golden.at(name).as_array();
  ASSERT_EQ(texts.size(), hashes.size());
  ASSERT_EQ(texts.size(), 2000u + 1975u + 1u);
  int num_different = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.Encode(texts[i]);
    if (Fnv1a(ids) != static_cast<uint32_t>(hashes[i].as_int64()) && ++num_different <= 10) {
      ADD_FAILURE() << name << " text " << i << ": " << texts[i];
    }
    ASSERT_EQ(tokenizer.Decode(ids, /*skip_special=*/false), WithoutSpaceMarks(texts[i]));
  }
  EXPECT_EQ(num_different, 0);
}

TEST(TokenizerGoldenTest, TinyTokenizerJson) { ExpectGolden(*TinyFromJson(), "tiny"); }
TEST(TokenizerGoldenTest, TinySentencePiece) { ExpectGolden(*TinyFromSentencePiece(), "tiny"); }
TEST(TokenizerGoldenTest, TinyGguf) { ExpectGolden(*TinyFromGguf(), "tiny"); }
TEST(TokenizerGoldenTest, Gemma3TokenizerJson) { ExpectGolden(*Gemma3FromJson(), "gemma3"); }

TEST(TokenizerGoldenTest, Gemma3SentencePiece) {
  const std::string config =
      ReadFile(SourcePath("tests/golden/gemma3-tokenizer/tokenizer_config.json"));
  const auto tokenizer = Loaded(Tokenizer::FromSentencePiece(
      WriteSentencePiece(PiecesOf(Gemma3Json())), config, "tokenizer.model"));
  ExpectGolden(*tokenizer, "gemma3");
}

TEST(TokenizerGoldenTest, Gemma3Gguf) {
  const auto tokenizer =
      Loaded(Tokenizer::FromGguf(WriteGguf(PiecesOf(Gemma3Json())), "gemma3.gguf"));
  ExpectGolden(*tokenizer, "gemma3");
}

// The one that another project's converter wrote, as the router gets it.
TEST(TokenizerGoldenTest, Published270mGguf) {
  const std::string path = SourcePath("models/gemma3-270m/gemma-3-270m-q4_k_m.gguf");
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there: scripts/fetch-model gemma3-270m";
  }
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto tokenizer = Loaded(Tokenizer::FromModelFiles((*checkpoint)->model_files()));
  ASSERT_NE(tokenizer, nullptr);
  ExpectGolden(*tokenizer, "gemma3");
}

}  // namespace
}  // namespace weightless::model
