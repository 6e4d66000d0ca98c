#include "loadtest/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

// Two tokens for a word of more than four letters, one for a shorter one.
size_t Count(const std::string& text) {
  size_t tokens = 0;
  size_t letters = 0;
  for (const char c : text + " ") {
    if (c == ' ' || c == '\n') {
      tokens += letters > 4 ? 2 : letters > 0 ? 1 : 0;
      letters = 0;
    } else {
      ++letters;
    }
  }
  return tokens;
}

absl::StatusOr<std::vector<size_t>> CountAll(const std::vector<std::string>& texts) {
  std::vector<size_t> counts;
  for (const std::string& text : texts) counts.push_back(Count(text));
  return counts;
}

WordText Words() { return *WordText::Calibrate(CountAll); }

TEST(WordTextTest, MakesExactlyTheWantedTokens) {
  const WordText words = Words();
  Random random(3);
  for (size_t wanted = 1; wanted < 200; ++wanted) {
    size_t actual = 0;
    const std::string text = words.Make(wanted, random, actual);
    EXPECT_EQ(actual, wanted);
    EXPECT_EQ(Count(text), wanted);
  }
}

TEST(WordTextTest, RefusesACounterThatDoesNotAddUp) {
  const auto constant = [](const std::vector<std::string>& texts) {
    return absl::StatusOr<std::vector<size_t>>(std::vector<size_t>(texts.size(), 1));
  };
  EXPECT_EQ(WordText::Calibrate(constant).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(RandomDatasetTest, LengthsAreInTheirRangesAndDependOnSeedAndIndexAlone) {
  const RandomLengths lengths{.input_tokens = {10, 20}, .output_tokens = {3, 5}, .seed = 9};
  const auto dataset = MakeRandomDataset(Words(), lengths);
  const auto again = MakeRandomDataset(Words(), lengths);
  size_t least = 100;
  size_t most = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const Prompt prompt = dataset->Get(i);
    EXPECT_EQ(Count(prompt.messages[0].content), prompt.num_tokens);
    least = std::min(least, prompt.num_tokens);
    most = std::max(most, prompt.num_tokens);
    EXPECT_GE(prompt.max_tokens, 3u);
    EXPECT_LE(prompt.max_tokens, 5u);
    EXPECT_EQ(prompt.messages[0].content, again->Get(i).messages[0].content);
  }
  EXPECT_EQ(least, 10u);
  EXPECT_EQ(most, 20u);
  EXPECT_NE(dataset->Get(0).messages[0].content, dataset->Get(1).messages[0].content);
}

TEST(RandomDatasetTest, PrefixesAreShared) {
  const auto dataset = MakeRandomDataset(
      Words(),
      {.input_tokens = {5, 5}, .output_tokens = {1, 1}, .prefix_tokens = 30, .num_prefixes = 2});
  std::vector<std::string> prefixes;
  for (uint64_t i = 0; i < 20; ++i) {
    const Prompt prompt = dataset->Get(i);
    EXPECT_EQ(prompt.num_tokens, 35u);
    const std::string& text = prompt.messages[0].content;
    prefixes.push_back(text.substr(0, text.find('\n')));
  }
  std::sort(prefixes.begin(), prefixes.end());
  EXPECT_EQ(std::unique(prefixes.begin(), prefixes.end()) - prefixes.begin(), 2);
}

TEST(TraceDatasetTest, EqualHashIdsAreEqualText) {
  const std::vector<TraceEntry> entries = {{0, 600, 4, {7, 8}}, {1, 1000, 5, {7, 9}}};
  const auto dataset = MakeTraceDataset(Words(), entries, 1);
  const Prompt first = dataset->Get(0);
  const Prompt second = dataset->Get(1);
  EXPECT_EQ(first.num_tokens, 600u);
  EXPECT_EQ(second.max_tokens, 5u);
  const std::string& a = first.messages[0].content;
  const std::string& b = second.messages[0].content;
  const size_t block_end = a.find('\n');
  EXPECT_EQ(a.substr(0, block_end), b.substr(0, block_end));
  EXPECT_EQ(Count(a.substr(0, block_end)), kTraceBlockTokens);
  EXPECT_NE(a.substr(block_end, 50), b.substr(block_end, 50));
}

absl::StatusOr<std::unique_ptr<Dataset>> Jsonl(std::string_view text,
                                               bool output_is_given = false) {
  DatasetConfig config;
  config.output_tokens = {33, 33};
  config.output_is_given = output_is_given;
  return MakeJsonlDataset(text, config, 1, CountAll);
}

TEST(JsonlDatasetTest, ReadsShareGptMessagesAndPrompts) {
  const auto dataset = Jsonl(
      R"({"conversations":[{"from":"system","value":"be nice"},{"from":"human","value":"hi there"},{"from":"gpt","value":"one two three"},{"from":"human","value":"more"}]})"
      "\n"
      R"({"messages":[{"role":"user","content":"hello"}]})"
      "\n"
      R"({"prompt":"just text","output_tokens":12})"
      "\n");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<std::pair<size_t, size_t>> seen;  // messages, max_tokens
  for (uint64_t i = 0; i < 3; ++i) {
    const Prompt prompt = (*dataset)->Get(i);
    seen.emplace_back(prompt.messages.size(), prompt.max_tokens);
  }
  EXPECT_THAT(seen,
              ::testing::UnorderedElementsAre(std::pair(2, 4), std::pair(1, 33), std::pair(1, 12)));
  EXPECT_EQ((*dataset)->Get(3).max_tokens, (*dataset)->Get(0).max_tokens);
}

TEST(JsonlDatasetTest, FlagGoesBeforeTheRecordedLength) {
  const auto dataset = Jsonl(R"([{"prompt":"x","output_tokens":12}])", true);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Get(0).max_tokens, 33u);
}

TEST(JsonlDatasetTest, NamesTheBadLine) {
  const auto message = [](std::string_view text) {
    return std::string(Jsonl(text).status().message());
  };
  EXPECT_THAT(message("{\"prompt\":\"a\"}\n{\"question\":\"b\"}\n"),
              HasSubstr("line 2: neither conversations, messages nor prompt"));
  EXPECT_THAT(message("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}"),
              HasSubstr("no turn of a user"));
  EXPECT_THAT(message("[{\"prompt\":\"a\",\"output_tokens\":0}]"),
              HasSubstr("item 0: output_tokens"));
  EXPECT_THAT(message("not json"), HasSubstr("line 1"));
  EXPECT_THAT(message(""), HasSubstr("empty"));
}

}  // namespace
}  // namespace weightless::loadtest
