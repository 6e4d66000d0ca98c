#include "model/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/model/tokenizer_files.h"

namespace weightless::model {
namespace {

int32_t ByteToken(const Tokenizer& tokenizer, unsigned char byte) {
  const char digits[] = "0123456789ABCDEF";
  return tokenizer.FindToken(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
}

std::vector<int32_t> ByteTokens(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char byte : bytes) {
    ids.push_back(ByteToken(tokenizer, static_cast<unsigned char>(byte)));
  }
  return ids;
}

// The decoder of the WHATWG Encoding Standard, kept to the letter of its state machine.
std::string DecodeByStandard(std::string_view bytes) {
  std::string text;
  unsigned needed = 0, seen = 0, lower = 0x80, upper = 0xBF;
  std::string character;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (needed == 0) {
      character = bytes[i];
      if (byte <= 0x7F) {
        text += bytes[i];
      } else if (byte >= 0xC2 && byte <= 0xDF) {
        needed = 1;
      } else if (byte >= 0xE0 && byte <= 0xEF) {
        if (byte == 0xE0) lower = 0xA0;
        if (byte == 0xED) upper = 0x9F;
        needed = 2;
      } else if (byte >= 0xF0 && byte <= 0xF4) {
        if (byte == 0xF0) lower = 0x90;
        if (byte == 0xF4) upper = 0x8F;
        needed = 3;
      } else {
        text += "\xEF\xBF\xBD";
      }
      continue;
    }
    const bool inside = byte >= lower && byte <= upper;
    lower = 0x80;
    upper = 0xBF;
    if (!inside) {
      needed = seen = 0;
      text += "\xEF\xBF\xBD";
      --i;  // the byte is read again
      continue;
    }
    character += bytes[i];
    if (++seen == needed) {
      text += character;
      needed = seen = 0;
    }
  }
  return needed == 0 ? text : text + "\xEF\xBF\xBD";
}

TEST(DetokenizerTest, HoldsBackHalfACharacter) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  Detokenizer detokenizer(*tiny, /*skip_special=*/true);
  const std::vector<int32_t> ids = ByteTokens(*tiny, "\xF0\x9F\x98\x80\xE2\x82");
  EXPECT_EQ(detokenizer.Push(ids[0]), "");
  EXPECT_EQ(detokenizer.Push(ids[1]), "");
  EXPECT_EQ(detokenizer.Push(ids[2]), "");
  EXPECT_EQ(detokenizer.Push(ids[3]), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Push(ids[4]), "");
  EXPECT_EQ(detokenizer.Push(ids[5]), "");
  EXPECT_EQ(detokenizer.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(DetokenizerTest, SkipsSpecialTokensAndUnknownIds) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  const std::vector<int32_t> ids = {2,
                                    14,
                                    tiny->FindToken("\xE2\x96\x81"
                                                    "a"),
                                    -1,
                                    4096,
                                    15,
                                    4};
  EXPECT_EQ(tiny->Decode(ids, /*skip_special=*/true), " a<mask>");
  EXPECT_EQ(tiny->Decode(ids, /*skip_special=*/false), "<bos><start_of_turn> a<end_of_turn><mask>");
}

// Lead bytes, continuation bytes and the edges between valid and invalid, often enough to meet.
unsigned char RandomByte(std::mt19937& random) {
  static constexpr unsigned char kEdges[] = {0x00, 'a',  0x7F, 0x80, 0x8F, 0x90, 0x9F,
                                             0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1,
                                             0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  const bool edge = random() % 4 > 0;
  return edge ? kEdges[random() % std::size(kEdges)] : static_cast<unsigned char>(random() % 256);
}

TEST(DetokenizerTest, RandomBytesGiveTheTextOfAStandardDecoder) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<int32_t> ids;
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) {
      // Mostly byte tokens; pieces and skipped special tokens between them.
      const size_t kind = random() % 8;
      const auto any = static_cast<int32_t>(random() % 4096);
      ids.push_back(kind == 0 ? any : kind == 1 ? 2 : ByteToken(*tiny, RandomByte(random)));
      if (!tiny->IsSpecial(ids.back())) bytes += tiny->TokenBytes(ids.back());
    }
    Detokenizer detokenizer(*tiny, /*skip_special=*/true);
    std::string text;
    for (const int32_t id : ids) text += detokenizer.Push(id);
    text += detokenizer.Finish();
    ASSERT_EQ(text, DecodeByStandard(bytes));
    ASSERT_EQ(text, tiny->Decode(ids, /*skip_special=*/true));
  }
}

TEST(DetokenizerTest, TextSoFarIsEverythingButAnIncompleteCharacter) {
  const std::unique_ptr<Tokenizer> tiny = TinyFromJson();
  std::mt19937 random(12);
  for (int round = 0; round < 2'000; ++round) {
    Detokenizer detokenizer(*tiny, /*skip_special=*/true);
    std::string bytes, text;
    for (int n = 0; n < 10; ++n) {
      const unsigned char byte = RandomByte(random);
      bytes += static_cast<char>(byte);
      text += detokenizer.Push(ByteToken(*tiny, byte));
      const std::string all = DecodeByStandard(bytes);
      // What is missing can only be the U+FFFD of the bytes held back.
      ASSERT_TRUE(text == all || text + "\xEF\xBF\xBD" == all);
    }
  }
}

}  // namespace
}  // namespace weightless::model
