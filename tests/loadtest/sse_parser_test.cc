#include "loadtest/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace weightless::loadtest {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Parse(std::string_view text, size_t size) {
  std::vector<std::string> events;
  SseParser parser;
  const auto add = [&](std::string_view data) { events.emplace_back(data); };
  while (!text.empty()) {
    // A copy, so that a view kept into it would be seen by the sanitizer.
    const std::string piece(text.substr(0, size));
    EXPECT_TRUE(parser.Feed(piece, add).ok());
    text.remove_prefix(std::min(size, text.size()));
  }
  parser.FeedEnd(add);
  return events;
}

TEST(SseParserTest, ReadsEventsHoweverTheyAreCut) {
  constexpr std::string_view kText =
      ": keep-alive\n\nevent: x\nid: 1\ndata: one\n\ndata:two\r\n\r\ndata: a\rdata: b\r\rdata\n\n"
      "data: last\n\n";
  for (size_t size = 1; size <= kText.size(); ++size) {
    EXPECT_THAT(Parse(kText, size), ElementsAre("one", "two", "a\nb", "last")) << size;
  }
}

TEST(SseParserTest, HandsOnALastEventWithoutItsBlankLine) {
  EXPECT_THAT(Parse("data: {}\n\ndata: [DONE]", 4), ElementsAre("{}", "[DONE]"));
  const std::string large(1 << 20, 'a');  // freed memory of this size would be noticed
  EXPECT_THAT(Parse("data: " + large, 4096), ElementsAre(large));
}

TEST(SseParserTest, SkipsFieldsThatOnlyBeginWithData) {
  EXPECT_THAT(Parse("database: 1\n\ndata: 2\n\n", 100), ElementsAre("2"));
}

TEST(SseParserTest, BoundsAnEvent) {
  SseParser parser;
  const std::string piece(1 << 20, 'a');
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) {
    status = parser.Feed(piece, [](std::string_view) {});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weightless::loadtest
