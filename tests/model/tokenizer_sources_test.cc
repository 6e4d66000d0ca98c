// The three loaders: equal results, and clear errors on files that are not right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "tests/model/tokenizer_files.h"
#include "tests/model/tokenizer_writers.h"

namespace weightless::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Pieces, their repetitions (which make merges compete), and any bytes.
std::string RandomText(const Tokenizer& tokenizer, std::mt19937& random) {
  std::string text;
  for (size_t n = 1 + random() % 6; n > 0; --n) {
    std::string part(tokenizer.TokenBytes(
        static_cast<int32_t>(random() % static_cast<unsigned>(tokenizer.vocab_size()))));
    switch (random() % 8) {
      case 0:
        part.assign(1, static_cast<char>(random() % 256));
        break;
      case 1:
        part = std::string(1, "aelnost "[random() % 8]);
        [[fallthrough]];
      case 2:
        for (int i = 0; i < 4; ++i) part += part;
        break;
      default:
        break;
    }
    text += part;
  }
  return text;
}

TEST(TokenizerSourcesTest, AgreeOnRandomText) {
  const auto json = TinyFromJson();
  const auto sentencepiece = TinyFromSentencePiece();
  const auto gguf = TinyFromGguf();
  std::mt19937 random(17);
  for (int i = 0; i < 50'000; ++i) {
    const std::string text = RandomText(*json, random);
    const bool parse_special = random() % 2 == 0;
    const std::vector<int32_t> ids = json->Encode(text, parse_special);
    ASSERT_EQ(sentencepiece->Encode(text, parse_special), ids) << text;
    ASSERT_EQ(gguf->Encode(text, parse_special), ids) << text;
  }
}

TEST(TokenizerSourcesTest, AgreeOnEveryToken) {
  const auto json = TinyFromJson();
  const auto sentencepiece = TinyFromSentencePiece();
  const auto gguf = TinyFromGguf();
  for (const Tokenizer* other : {sentencepiece.get(), gguf.get()}) {
    ASSERT_EQ(other->vocab_size(), json->vocab_size());
    EXPECT_EQ(other->bos_id(), json->bos_id());
    for (int32_t id = -1; id <= json->vocab_size(); ++id) {
      ASSERT_EQ(other->TokenBytes(id), json->TokenBytes(id)) << id;
      ASSERT_EQ(other->IsSpecial(id), json->IsSpecial(id)) << id;
      ASSERT_EQ(other->IsByteToken(id), json->IsByteToken(id)) << id;
    }
  }
  for (const std::string piece : {"<bos>",
                                  "\xE2\x96\x81"
                                  "a",
                                  "\n\n", "<0x7F>", "no such piece"}) {
    EXPECT_EQ(sentencepiece->FindToken(piece), json->FindToken(piece));
    EXPECT_EQ(gguf->FindToken(piece), json->FindToken(piece));
  }
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string JsonError(const std::string& text) {
  return Tokenizer::FromTokenizerJson(text, "t.json").status().ToString();
}

TEST(TokenizerSourcesTest, TokenizerJsonErrorsNameFileFieldAndValue) {
  const std::string good = ReadFile(SourcePath("models/tiny-gemma3/tokenizer.json"));
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } cases[] = {
      {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "model.type is \"Unigram\""},
      {"\"byte_fallback\": true", "\"byte_fallback\": false", "model.byte_fallback is not true"},
      {"\"ignore_merges\": false", "\"ignore_merges\": true", "model: ignore_merges is true"},
      {"\"dropout\": null", "\"dropout\": 0.5", "model.dropout is a number"},
      {"\"type\": \"Replace\"", "\"type\": \"NFC\"", "normalizer: "},
      {"\"type\": \"Split\"", "\"type\": \"ByteLevel\"", "pre_tokenizer: "},
      {"\"type\": \"Fuse\"", "\"type\": \"Strip\"", "decoder: step \"Strip\" is not supported"},
      {"\"<pad>\": 0", "\"<pad>\": 4194304", "model.vocab: the id of \"<pad>\""},
      {"\"<pad>\": 0", "\"<pad>\": -1", "model.vocab: the id of \"<pad>\""},
      {"\"<pad>\": 0", "\"<pad>\": 1.5", "model.vocab: the id of \"<pad>\""},
      {"\"<pad>\": 0", "\"<pad>\": 1", "model.vocab: id 1 is given to"},
      {"\"<pad>\": 0", "\"\": 0", "model.vocab: id 0 has an empty piece"},
      {"\"<0x41>\": 83", "\"<0x4G>\": 83", "byte token <0x41> is missing"},
      {"\"\xE2\x96\x81\": ", "\"\xE2\x96\x82\": ", "no such piece: \"\\xe2\\x96\\x81\""},
      {"\"id\": 1,", "\"id\": 0,", "added_tokens[1]: id 0 is given twice"},
      {"\"id\": 1,", "\"id\": 5000,", "added_tokens[1]: piece \"<eos>\" has the ids 1 and 5000"},
      {"\"lstrip\": false", "\"lstrip\": true", "added_tokens[0]: lstrip is true"},
      {"\"special\": true", "\"special\": 1", "added_tokens[0]: special is not a boolean"},
      {"\"merges\": [", "\"merges\": [[\"i\", \"no piece\"],", "model.merges[0]: merge of \"i\""},
      {"\"merges\": [", "\"merges\": [[\"<0x41>\", \"i\"],", "model.merges[0]: merge of"},
      {"\"merges\": [", "\"merges\": [\"i n x\",", "model.merges[0]: \"i n x\" is not a pair"},
      {"\"merges\": [", "\"merges\": [7,", "model.merges[0]: 7 is not a pair"},
      {"\"added_tokens\": [", "\"added_tokens\": [0,", "added_tokens[0]: is 0, not an object"},
      {"\"model\"", "\"other\"", "model is not an object"},
      {"{", "[", "not valid JSON"},
  };
  for (const auto& test_case : cases) {
    EXPECT_THAT(JsonError(Replaced(good, test_case.from, test_case.to)),
                AllOf(HasSubstr("INVALID_ARGUMENT: t.json: "), HasSubstr(test_case.message)));
  }
  EXPECT_THAT(JsonError(Replaced(good, "\"<pad>\": 0", '"' + std::string(600, 'x') + "\": 0")),
              HasSubstr("id 0 has a piece of 600 bytes, limit 256"));
  EXPECT_THAT(JsonError("[]"), HasSubstr("the file is not a JSON object"));
  EXPECT_THAT(JsonError(""), HasSubstr("not valid JSON"));
}

// All 256 byte tokens, <bos>, and a few pieces.
std::vector<WrittenPiece> SmallVocabulary() {
  std::vector<WrittenPiece> pieces = {{.text = "<bos>", .score = 0, .type = 3, .special = true},
                                      {.text = "<unk>", .score = 0, .type = 2, .special = true}};
  const char digits[] = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
    pieces.push_back({.text = text, .score = 0, .type = 6, .special = false});
  }
  float score = 0;
  for (const char* text : {"ab", "abab", "a", "b", "\xE2\x96\x81"}) {
    pieces.push_back({.text = text, .score = score--, .type = 1, .special = false});
  }
  return pieces;
}

std::string SentencePieceError(const std::string& model, const std::string& config = "") {
  return Tokenizer::FromSentencePiece(model, config, "t.model").status().ToString();
}

TEST(TokenizerSourcesTest, SentencePieceErrorsNameFileFieldAndValue) {
  const std::vector<WrittenPiece> pieces = SmallVocabulary();
  const std::string good = WriteSentencePiece(pieces);
  const auto tokenizer = Loaded(Tokenizer::FromSentencePiece(good, "", "t.model"));
  EXPECT_EQ(tokenizer->Encode("ababab"), (std::vector<int32_t>{259, 258}));

  const auto with_piece = [&](WrittenPiece piece) {
    return SentencePieceError(good + SentencePieceField(piece));
  };
  const std::string at = "t.model: pieces[263]: ";
  EXPECT_THAT(with_piece({.text = "a"}), HasSubstr(at + "piece \"a\" has the ids 260 and 263"));
  EXPECT_THAT(with_piece({.text = ""}), HasSubstr(at + "id 263 has an empty piece"));
  EXPECT_THAT(with_piece({.text = "\xFF"}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(with_piece({.text = "c", .type = 9}), HasSubstr(at + "type 9 is not in [1, 6]"));
  EXPECT_THAT(with_piece({.text = "c", .score = std::numeric_limits<float>::infinity()}),
              HasSubstr(at + "score is not finite"));

  EXPECT_THAT(SentencePieceError(good + BytesField(2, VarintField(3, 1))),
              HasSubstr("t.model: trainer_spec: model_type is 1; only 2 (BPE) is supported"));
  EXPECT_THAT(SentencePieceError(good + BytesField(3, "")),
              HasSubstr("t.model: normalizer_spec: add_dummy_prefix is true"));
  EXPECT_THAT(SentencePieceError(good + BytesField(3, VarintField(3, 0) + BytesField(2, "abc"))),
              HasSubstr("t.model: normalizer_spec: precompiled_charsmap has 3 bytes"));
  EXPECT_THAT(SentencePieceError(good + "\x0A\x05"
                                        "ab"),
              HasSubstr("t.model: field 1 of 5 bytes at byte"));
  EXPECT_THAT(SentencePieceError(good + std::string(11, '\xFF')),
              HasSubstr("number longer than 64 bits"));
  EXPECT_THAT(SentencePieceError(good + "\x0B"), HasSubstr("wire type 3"));
  EXPECT_THAT(SentencePieceError(""), HasSubstr("t.model: trainer_spec: model_type is 1"));
  EXPECT_THAT(SentencePieceError(SpecFields()), HasSubstr("t.model: byte token <0x00> is missing"));
}

TEST(TokenizerSourcesTest, TokenizerConfigAddsTokensAndFlags) {
  const std::string model = WriteSentencePiece(SmallVocabulary());
  const auto tokenizer = Loaded(Tokenizer::FromSentencePiece(
      model,
      R"({"added_tokens_decoder": {"258": {"content": "ab", "special": true},
                                   "270": {"content": "<end>", "special": false}}})",
      "t.model"));
  EXPECT_EQ(tokenizer->vocab_size(), 271);
  EXPECT_EQ(tokenizer->Encode("ab<end>a"), (std::vector<int32_t>{258, 270, 260}));
  EXPECT_EQ(tokenizer->Encode("ab", /*parse_special=*/false), (std::vector<int32_t>{260, 261}));

  const auto error = [&](const std::string& decoder) {
    return SentencePieceError(model, "{\"added_tokens_decoder\": " + decoder + "}");
  };
  EXPECT_THAT(error("[]"), HasSubstr("tokenizer_config.json: added_tokens_decoder is an array"));
  EXPECT_THAT(error(R"({"x": {}})"), HasSubstr("\"x\" is not a token id"));
  EXPECT_THAT(error(R"({"4": 5})"), HasSubstr("added_tokens_decoder[4] is 5, not an object"));
  EXPECT_THAT(error(R"({"4": {"content": "<x>", "special": true}})"),
              HasSubstr("added_tokens_decoder[4]: id 4 is given to \"<0x02>\" and to \"<x>\""));
  EXPECT_THAT(error(R"({"99999999": {"content": "<x>", "special": true}})"),
              HasSubstr("piece \"<x>\" has id 99999999, limit 4194303"));
}

std::string GgufError(const std::string& header) {
  return Tokenizer::FromGguf(header, "t.gguf").status().ToString();
}

TEST(TokenizerSourcesTest, GgufErrorsNameFileFieldAndValue) {
  const std::string good = WriteGguf(SmallVocabulary());
  const auto tokenizer = Loaded(Tokenizer::FromGguf(good, "t.gguf"));
  EXPECT_EQ(tokenizer->Encode("ababab"), (std::vector<int32_t>{259, 258}));
  EXPECT_EQ(tokenizer->bos_id(), 0);

  EXPECT_THAT(GgufError(Replaced(good, "llama", "bert!")),
              HasSubstr("t.gguf: tokenizer.ggml.model is \"bert!\""));
  EXPECT_THAT(GgufError(Replaced(good, "ggml.scores", "ggml.storea")),
              HasSubstr("t.gguf: tokenizer.ggml.scores is missing"));
  EXPECT_THAT(GgufError(Replaced(good, "ggml.tokens", "ggml.tokenz")),
              HasSubstr("t.gguf: tokenizer.ggml.tokens is missing"));
  EXPECT_THAT(GgufError(Replaced(good, "<0x41>", "<0x42>")),
              HasSubstr("t.gguf: tokenizer.ggml.tokens: piece \"<0x42>\" has the ids 67 and 68"));
  EXPECT_THAT(GgufError(Replaced(good, "abab",
                                 "a\xFF"
                                 "ab")),
              HasSubstr("not valid UTF-8"));
  EXPECT_THAT(GgufError(Replaced(good, "\xE2\x96\x81", "\xE2\x96\x82")),
              HasSubstr("t.gguf: no piece stands for a space (U+2581)"));
  EXPECT_THAT(GgufError(Replaced(good, "<bos>", "<b0s>")), HasSubstr("t.gguf: no <bos> token"));
  EXPECT_FALSE(Tokenizer::FromGguf(good.substr(0, good.size() - 1), "t.gguf").ok());

  const auto broken = [&](size_t index, WrittenPiece piece) {
    std::vector<WrittenPiece> pieces = SmallVocabulary();
    pieces[index] = std::move(piece);
    return GgufError(WriteGguf(pieces));
  };
  EXPECT_THAT(broken(258, {.text = "ab", .score = std::numeric_limits<float>::quiet_NaN()}),
              HasSubstr("t.gguf: tokenizer.ggml.scores[258] is not finite"));
  EXPECT_THAT(broken(258, {.text = "ab", .type = 0}),
              HasSubstr("t.gguf: tokenizer.ggml.token_type[258] is 0, not in [1, 6]"));
}

TEST(TokenizerSourcesTest, GgufListsMergesInOrder) {
  std::vector<WrittenPiece> pieces = SmallVocabulary();
  for (const char* text : {"ba", "\n", "\n\n"}) pieces.push_back({.text = text});
  const auto tokenizer =
      Loaded(Tokenizer::FromGguf(WriteGguf(pieces, "gemma4", {"b a", "a b", "\n \n"}), "t.gguf"));
  EXPECT_EQ(tokenizer->Encode("abab\n\n"), (std::vector<int32_t>{260, 263, 261, 265}));

  const std::string at = "t.gguf: tokenizer.ggml.merges[0]";
  EXPECT_THAT(GgufError(WriteGguf(pieces, "gpt2", {"ab"})),
              HasSubstr(at + " is \"ab\", not two pieces"));
  EXPECT_THAT(GgufError(WriteGguf(pieces, "gpt2", {"a z"})),
              HasSubstr(at + ": merge of \"a\" and \"z\": no such piece: \"z\""));
}

}  // namespace
}  // namespace weightless::model
