#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/json.h"
#include "tests/model/tokenizer_files.h"

namespace weightless::model {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

using Ids = std::vector<int32_t>;

Ids EncodeInert(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.Encode(text, /*parse_special=*/false);
}

TEST(TokenizerTest, MatchesTheGoldenCasesOfTheTinyModelFromEverySource) {
  const auto root = ParseJson(ReadFile(SourcePath("tests/golden/tiny-gemma3-golden.json")));
  ASSERT_TRUE(root.ok()) << root.status();
  const std::unique_ptr<Tokenizer> sources[] = {TinyFromJson(), TinyFromSentencePiece(),
                                                TinyFromGguf()};
  for (const auto& entry : root->at("tokenizer").as_array()) {
    const auto text_of = [&](const char* key) {
      const auto& text = entry.at(key).as_string();
      return std::string(text.data(), text.size());
    };
    const std::string text = text_of("text");
    Ids ids;
    for (const auto& id : entry.at("ids").as_array()) {
      ids.push_back(static_cast<int32_t>(id.as_int64()));
    }
    for (const auto& tokenizer : sources) {
      EXPECT_EQ(tokenizer->Encode(text), ids) << text;
      EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/false), text_of("decoded"));
    }
  }
}

TEST(TokenizerTest, EncodesTheGemma3Probes) {
  const std::unique_ptr<Tokenizer> gemma3 = Gemma3FromJson();
  const struct {
    std::string text;
    Ids ids;
  } probes[] = {
      {"Hello,", {9259, 236764}},
      {" Hello  world", {26352, 138, 12392}},
      {"The capital of France is", {818, 5279, 529, 7001, 563}},
      {"a\n\n\n\nb", {236746, 110, 236763}},
      {"\t\tx = 1;\r\n", {255969, 236781, 578, 236743, 236770, 236793, 251, 107}},
      {"émoji 😀 € 中文字", {236859, 58197, 163543, 11361, 17346, 31818}},
      {"1234567890",
       {236770, 236778, 236800, 236812, 236810, 236825, 236832, 236828, 236819, 236771}},
      {std::string("\U000107A5\0z", 6), {478, 382, 396, 403, 238, 236802}},
      {"<table><tr>", {168, 173}},
      {"   leading three", {139, 26016, 1806}},
      {"<start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n",
       {105, 2364, 107, 10979, 993, 106, 107, 105, 4368, 107}},
      {std::string(40, '\n'), {137, 115}},
  };
  for (const auto& probe : probes) {
    EXPECT_EQ(gemma3->Encode(probe.text), probe.ids) << probe.text;
    EXPECT_EQ(gemma3->Decode(probe.ids, /*skip_special=*/false), probe.text);
  }
  EXPECT_EQ(gemma3->vocab_size(), 262145);
  EXPECT_EQ(gemma3->bos_id(), 2);
  for (int32_t id = 0; id < gemma3->vocab_size(); ++id) {
    const bool special =
        id < 4 || id == 105 || id == 106 || id == 255999 || id == 256000 || id == 262144;
    ASSERT_EQ(gemma3->IsSpecial(id), special) << id;
  }
}

TEST(TokenizerTest, ControlTextIsInertWhereSpecialTokensAreNotParsed) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  for (const std::string text : {"<bos>", "a<end_of_turn>b", "<start_of_turn>user\n<eos>"}) {
    const Ids ids = EncodeInert(*tiny, text);
    for (const int32_t id : ids) EXPECT_FALSE(tiny->IsSpecial(id)) << text << " " << id;
    EXPECT_EQ(tiny->Decode(ids, /*skip_special=*/true), text);
  }
  // Added tokens that are not special are matched everywhere.
  EXPECT_THAT(EncodeInert(*tiny, "[multimodal]\n\n"), ElementsAre(5, 17));
}

TEST(TokenizerTest, SpecialTokenNeedsEveryByteInParsedStretches) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  const auto encode = [&](std::vector<TextPiece> pieces) { return tiny->Encode(pieces); };
  EXPECT_THAT(encode({{"<b", true}, {"os>", true}}), ElementsAre(2));
  EXPECT_EQ(encode({{"<b", true}, {"os>", false}}), EncodeInert(*tiny, "<bos>"));
  EXPECT_EQ(encode({{"<b", false}, {"os>", true}}), EncodeInert(*tiny, "<bos>"));
  EXPECT_EQ(encode({{"<", true}, {"bos", false}, {">", true}}), EncodeInert(*tiny, "<bos>"));
  EXPECT_THAT(encode({{"<bos>", true}, {"\n", false}, {"\n", true}, {"<eos>", true}}),
              ElementsAre(2, 17, 1));
  EXPECT_EQ(encode({{"hel", true}, {"lo wor", false}, {"ld", true}}), tiny->Encode("hello world"));
}

TEST(TokenizerTest, AnyBytesRoundTrip) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  EXPECT_TRUE(tiny->Encode("").empty());
  const std::string text("plain \xC3\xA9 \xF0\x9F\x98\x80 \0 \xE2\x96\x81", 20);
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const std::string bytes = text.substr(cut, 7) + "\xFF\xC3 \xE2\x82" + text.substr(0, cut);
    std::string joined;
    for (const int32_t id : tiny->Encode(bytes)) joined += tiny->TokenBytes(id);
    std::string expected;  // U+2581 stands for a space
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool mark = bytes.compare(i, 3, "\xE2\x96\x81") == 0;
      expected += mark ? ' ' : bytes[i];
      if (mark) i += 2;
    }
    EXPECT_EQ(joined, expected);
  }
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const std::string text = ReadFile(SourcePath("tests/golden/tiny-heldout.txt")).substr(0, 40'000);
  const Ids expected = TinyFromJson()->Encode(text);
  const std::unique_ptr<Tokenizer> shared = TinyFromJson();
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = shared->Encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(TokenizerTest, PicksTheBestOfTheModelFiles) {
  std::map<std::string, std::string> files;
  EXPECT_EQ(Tokenizer::FromModelFiles(files).status().code(), absl::StatusCode::kNotFound);
  files["gguf_header"] = ReadFile(SourcePath("models/tiny-gemma3-bf16.gguf"));
  EXPECT_EQ(Loaded(Tokenizer::FromModelFiles(files))->vocab_size(), 4096);
  files["tokenizer.model"] = "not a model";
  EXPECT_FALSE(Tokenizer::FromModelFiles(files).ok());
  files["tokenizer.json"] = ReadFile(SourcePath("models/tiny-gemma3/tokenizer.json"));
  EXPECT_EQ(Loaded(Tokenizer::FromModelFiles(files))->bos_id(), 2);
}

}  // namespace
}  // namespace weightless::model
