#include "loadtest/chunk.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loadtest/random.h"

namespace weightless::loadtest {
namespace {

// As different servers write them.
const std::vector<std::string>& Samples() {
  static const std::vector<std::string> samples = {
      R"({"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
      R"({"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null,"token_ids":[1,2,3]}],"usage":null})",
      R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})",
      R"({"choices":[{"text":" world \" } ] \\","index":0,"finish_reason":"stop","logprobs":{"tokens":["a"],"x":-1.5e-3}}]})",
      R"({"choices":[],"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}})",
      R"({ "choices" : [ { "delta" : { "reasoning_content" : "hm" , "content" : null } } ] , "usage" : { "prompt_tokens" : 1 , "completion_tokens" : 2 } })",
      R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]})",
      R"({"error":{"message":"no","code":null},"choices":null})",
      R"({"error":null,"choices":[{"delta":null,"finish_reason":null,"token_ids":null}],"x":[true,false,{"y":[[1]]}]})",
  };
  return samples;
}

void ExpectEqual(const Chunk& scanned, const Chunk& parsed, const std::string& text) {
  EXPECT_EQ(scanned.content_bytes > 0, parsed.content_bytes > 0) << text;
  EXPECT_EQ(scanned.num_token_ids, parsed.num_token_ids) << text;
  EXPECT_EQ(scanned.finish_reason, parsed.finish_reason) << text;
  EXPECT_EQ(scanned.is_error, parsed.is_error) << text;
  ASSERT_EQ(scanned.usage.has_value(), parsed.usage.has_value()) << text;
  if (!scanned.usage) return;
  EXPECT_EQ(scanned.usage->prompt_tokens, parsed.usage->prompt_tokens) << text;
  EXPECT_EQ(scanned.usage->completion_tokens, parsed.usage->completion_tokens) << text;
  EXPECT_EQ(scanned.usage->cached_tokens, parsed.usage->cached_tokens) << text;
}

TEST(ChunkTest, ScanAgreesWithTheFullParse) {
  for (const std::string& text : Samples()) {
    Chunk scanned;
    Chunk parsed;
    std::string reason;
    ASSERT_TRUE(ScanChunk(text, scanned)) << text;
    ASSERT_TRUE(ParseChunk(text, parsed, reason).ok()) << text;
    ExpectEqual(scanned, parsed, text);
  }
}

TEST(ChunkTest, ReadsWhatMatters) {
  Chunk chunk;
  ASSERT_TRUE(ScanChunk(Samples()[1], chunk));
  EXPECT_EQ(chunk.content_bytes, 5u);
  EXPECT_EQ(chunk.num_token_ids, 3u);
  chunk = {};
  ASSERT_TRUE(ScanChunk(Samples()[0], chunk));
  EXPECT_EQ(chunk.content_bytes, 0u);
  chunk = {};
  ASSERT_TRUE(ScanChunk(Samples()[4], chunk));
  EXPECT_EQ(chunk.usage->cached_tokens, 8);
  chunk = {};
  ASSERT_TRUE(ScanChunk(Samples()[3], chunk));
  EXPECT_EQ(chunk.finish_reason, "stop");
}

TEST(ChunkTest, ScanGivesUpWhenItIsNotSure) {
  for (const char* text :
       {R"({"ch\u006fices":[{"text":"a"}]})", R"({"choices":[{"finish_reason":"st\u006fp"}]})",
        R"({"usage":{"prompt_tokens":1.0,"completion_tokens":1}})", R"({"choices":[{"text":"a"})",
        R"({"choices":{}} )", "[]", "", "{} x", R"({"usage":{"completion_tokens":-1}})",
        R"({"choices":[{"text":"wörld"}]})", "{\"choices\":[{\"text\":\"\xff\"}]}"}) {
    Chunk chunk;
    EXPECT_FALSE(ScanChunk(text, chunk)) << text;
  }
}

TEST(ChunkTest, FullParseDecidesWhatTheScanDoesNot) {
  Chunk chunk;
  std::string reason;
  ASSERT_TRUE(
      ParseChunk(
          R"({"ch\u006fices":[{"text":"a\n","finish_reason":"st\u006fp"}],"usage":{"prompt_tokens":1.0,"completion_tokens":2}})",
          chunk, reason)
          .ok());
  EXPECT_EQ(chunk.text, "a\n");
  EXPECT_EQ(chunk.finish_reason, "stop");
  EXPECT_EQ(chunk.usage->prompt_tokens, 1);
  EXPECT_FALSE(ParseChunk("[1]", chunk, reason).ok());
  EXPECT_FALSE(ParseChunk("nonsense", chunk, reason).ok());
}

// Whatever bytes come: where scan and parse both accept, they agree.
TEST(ChunkTest, MutatedChunksAreNeverReadTwoWays) {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = Samples()[random.Below(Samples().size())];
    for (uint64_t k = random.Between(1, 3); k > 0; --k) {
      const size_t at = random.Below(text.size());
      const std::string_view letters = "{}[]\",:0 nte\\";
      if (random.Below(2) == 0) {
        text[at] = letters[random.Below(letters.size())];
      } else {
        text.erase(at, random.Between(1, 4));
      }
      if (text.empty()) text = "{}";
    }
    Chunk scanned;
    Chunk parsed;
    std::string reason;
    if (ScanChunk(text, scanned) && ParseChunk(text, parsed, reason).ok()) {
      ExpectEqual(scanned, parsed, text);
    }
  }
}

}  // namespace
}  // namespace weightless::loadtest
