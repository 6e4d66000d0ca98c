#include "model/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "model/utf8.h"
#include "tests/model/tokenizer_files.h"

namespace weightless::model {
namespace {

using ::testing::ElementsAre;

using Ids = std::vector<int32_t>;

// Byte tokens at 0 .. 255, then the pieces.
Vocabulary MakeVocabulary(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char digits[] = "0123456789ABCDEF";
    const std::string name = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
    EXPECT_TRUE(vocabulary.Add(byte, name, {}).ok());
  }
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(vocabulary.Add(vocabulary.size(), piece, {}).ok());
  }
  return vocabulary;
}

Ids Encode(const BpeEncoder& encoder, std::string_view text) {
  BpeEncoder::Scratch scratch;
  Ids ids;
  encoder.Encode(text, scratch, ids);
  return ids;
}

// The rule, word for word: the whole text is one list of symbols, searched again after each merge.
Ids EncodeNaively(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                  std::string_view text) {
  Ids ids;
  while (!text.empty()) {
    const auto length = static_cast<size_t>(DecodeUtf8(text).length);
    const int32_t id = vocabulary.Find(text.substr(0, length));
    if (id >= 0) {
      ids.push_back(id);
    } else {
      for (const char c : text.substr(0, length)) {
        ids.push_back(vocabulary.byte_token(static_cast<unsigned char>(c)));
      }
    }
    text.remove_prefix(length);
  }
  for (size_t rank = 0; rank < merges.size();) {
    bool merged = false;
    for (size_t i = 0; i + 1 < ids.size() && !merged; ++i) {
      if (ids[i] != merges[rank].left || ids[i + 1] != merges[rank].right) continue;
      ids[i] = merges[rank].result;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
      merged = true;
    }
    rank = merged ? 0 : rank + 1;
  }
  return ids;
}

TEST(BpeTest, MergesByRankThenFromTheLeft) {
  const Vocabulary vocabulary = MakeVocabulary({"a", "b", "ab", "ba", "aba"});
  const int32_t a = 256, b = 257, ab = 258, ba = 259, aba = 260;
  const std::vector<Merge> merges = {{b, a, ba}, {a, b, ab}, {ab, a, aba}, {a, ba, aba}};
  const BpeEncoder encoder(vocabulary, merges);
  EXPECT_THAT(Encode(encoder, "ab"), ElementsAre(ab));
  EXPECT_THAT(Encode(encoder, "aba"), ElementsAre(aba));
  EXPECT_THAT(Encode(encoder, "ababab"), ElementsAre(aba, ba, b));
  EXPECT_THAT(Encode(encoder, "aXb"), ElementsAre(a, 'X', b));
  EXPECT_THAT(Encode(encoder, ""), ElementsAre());
}

TEST(BpeTest, BytesThatAreNoCharacterBecomeByteTokens) {
  const Vocabulary vocabulary = MakeVocabulary({"a", "\xC3\xA9"});
  const BpeEncoder encoder(vocabulary, {});
  EXPECT_THAT(Encode(encoder, "a\xC3\xA9\xC3 \xE2\x82\xAC\xED\xA0\x80"),
              ElementsAre(256, 257, 0xC3, ' ', 0xE2, 0x82, 0xAC, 0xED, 0xA0, 0x80));
}

TEST(BpeTest, NeverYieldsSpecialOrUnusedPieces) {
  Vocabulary vocabulary = MakeVocabulary({"a", "b", "ab", "c"});
  vocabulary.SetFlags(258, {.added = true, .special = true});
  vocabulary.SetFlags(259, {.unused = true});
  const BpeEncoder encoder(vocabulary, {{256, 257, 258}});
  EXPECT_THAT(Encode(encoder, "abc"), ElementsAre(256, 257, 'c'));
}

// Random vocabularies closed under nothing, random merge orders, texts long enough for the heap.
TEST(BpeTest, EqualsTheNaiveRuleOnRandomVocabularies) {
  std::mt19937 random(7);
  const std::vector<std::string> alphabet = {"a", "b", "c", "\xC3\xA9", "\xE2\x96\x81", "z"};
  const auto pick = [&](size_t n) { return random() % n; };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> pieces(alphabet.begin(), alphabet.end() - 1);  // "z" is no piece
    std::vector<std::string> parts = pieces;
    for (size_t i = 0; i < 40; ++i) {
      const std::string piece = parts[pick(parts.size())] + parts[pick(parts.size())];
      if (std::find(parts.begin(), parts.end(), piece) == parts.end()) parts.push_back(piece);
    }
    const Vocabulary vocabulary = MakeVocabulary(parts);
    std::vector<Merge> merges;
    for (int32_t left = 256; left < vocabulary.size(); ++left) {
      for (int32_t right = 256; right < vocabulary.size(); ++right) {
        const std::string text =
            std::string(vocabulary.Piece(left)).append(vocabulary.Piece(right));
        const int32_t result = vocabulary.Find(text);
        if (result >= 0 && pick(4) > 0) merges.push_back({left, right, result});
      }
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const BpeEncoder encoder(vocabulary, merges);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      const size_t num_letters = 1 + pick(alphabet.size());
      for (size_t n = pick(i < 15 ? 12 : 90); n > 0; --n) text += alphabet[pick(num_letters)];
      ASSERT_EQ(Encode(encoder, text), EncodeNaively(vocabulary, merges, text)) << text;
    }
  }
}

// A megabyte of one character is one stretch; quadratic work would run for hours.
TEST(BpeTest, LongRunsTakeLinearithmicTime) {
  const std::unique_ptr<Tokenizer> gemma3 = Gemma3FromJson();
  for (const std::string unit : {"a", " ", "\n", "ab"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const Ids ids = gemma3->Encode(text);
    EXPECT_LT(ids.size(), text.size() / 2) << unit;
    EXPECT_EQ(gemma3->Decode(ids, false), text);
  }
}

}  // namespace
}  // namespace weightless::model
