#include "loadtest/http_response_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  absl::Status status;
  std::string body;
  HttpResponseParser parser;
};

// Feeds `text` in pieces of `size` bytes.
Parsed Parse(std::string_view text, size_t size) {
  Parsed out;
  while (!text.empty() && out.status.ok()) {
    out.status = out.parser.Feed(text.substr(0, size),
                                 [&](std::string_view body) { out.body.append(body); });
    text.remove_prefix(std::min(size, text.size()));
  }
  return out;
}

TEST(HttpResponseParserTest, ReadsChunksHoweverTheyAreCut) {
  constexpr std::string_view kText =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTRANSFER-encoding: Chunked\r\n\r\n"
      "5\r\nhello\r\n6;note=x\r\n world\r\n0\r\nTrailer: 1\r\n\r\n";
  for (size_t size = 1; size <= kText.size(); ++size) {
    const Parsed parsed = Parse(kText, size);
    ASSERT_TRUE(parsed.status.ok()) << parsed.status;
    EXPECT_EQ(parsed.body, "hello world");
    EXPECT_TRUE(parsed.parser.is_done());
    EXPECT_TRUE(parsed.parser.keeps_alive());
    EXPECT_EQ(parsed.parser.head().content_type, "text/event-stream");
  }
}

TEST(HttpResponseParserTest, ReadsAKnownLength) {
  const Parsed parsed = Parse("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nbody", 3);
  EXPECT_EQ(parsed.parser.head().status, 404);
  EXPECT_EQ(parsed.body, "body");
  EXPECT_TRUE(parsed.parser.is_done());
}

TEST(HttpResponseParserTest, ReadsToTheCloseWithoutALength) {
  Parsed parsed = Parse("HTTP/1.0 200 OK\r\n\r\nall of it", 5);
  EXPECT_FALSE(parsed.parser.is_done());
  EXPECT_TRUE(parsed.parser.FeedEnd().ok());
  EXPECT_EQ(parsed.body, "all of it");
  EXPECT_FALSE(parsed.parser.keeps_alive());
}

TEST(HttpResponseParserTest, SkipsInterimResponses) {
  const Parsed parsed =
      Parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 7);
  EXPECT_EQ(parsed.parser.head().status, 200);
  EXPECT_EQ(parsed.body, "ok");
}

TEST(HttpResponseParserTest, KeepsWhereARedirectLeads) {
  const Parsed parsed =
      Parse("HTTP/1.1 307 Moved\r\nlocation:  https://h/v1 \r\nContent-Length: 0\r\n\r\n", 11);
  EXPECT_EQ(parsed.parser.head().status, 307);
  EXPECT_EQ(parsed.parser.head().location, "https://h/v1");
}

TEST(HttpResponseParserTest, ClosesAfterConnectionCloseAndExcessBytes) {
  EXPECT_FALSE(Parse("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", 9)
                   .parser.keeps_alive());
  EXPECT_FALSE(Parse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", 100).parser.keeps_alive());
}

TEST(HttpResponseParserTest, TellsACutResponseFromACompleteOne) {
  for (const char* text : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    EXPECT_EQ(Parse(text, 1000).parser.FeedEnd().code(), absl::StatusCode::kUnavailable) << text;
  }
}

TEST(HttpResponseParserTest, RefusesWhatIsNotHttp) {
  for (const char* text :
       {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc OK\r\n", "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"}) {
    EXPECT_EQ(Parse(text, 1000).status.code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HttpResponseParserTest, BoundsTheHead) {
  const std::string line(9000, 'a');
  EXPECT_THAT(Parse("HTTP/1.1 200 OK\r\nx: " + line, 100).status.message(),
              HasSubstr("exceeds 8192"));
  std::string head = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 70; ++i) head += "x: " + std::string(1000, 'a') + "\r\n";
  EXPECT_FALSE(Parse(head, 1000).status.ok());
}

}  // namespace
}  // namespace weightless::loadtest
