// What a session says about servers that do not answer as they should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include "common/json.h"
#include "loadtest/measurement.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

// A run of four requests against a server with `fault` in every one of them.
Session MeasureWith(Fault fault) {
  const MockServer server({.fault = fault});
  Config config;
  config.url = server.url();
  config.num_prompts = 4;
  config.warmup = 0;
  config.dataset.output_tokens = {4, 4};
  config.progress = "off";
  auto session = Measure(config);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : Session{};
}

// Expects every request to fail with `message`, in each form of report.
void ExpectFailure(Fault fault, const char* message) {
  const Session session = MeasureWith(fault);
  EXPECT_EQ(ExitCode(session), 1);
  ASSERT_EQ(session.reports.size(), 1u);
  EXPECT_EQ(session.reports[0].summary.failed, 4u);
  EXPECT_THAT(FirstFailure(session.reports[0]), HasSubstr(message));
  EXPECT_THAT(TableReport(session), HasSubstr(message));
  EXPECT_THAT(CsvReport(session), HasSubstr(message));
  EXPECT_TRUE(ParseJson(JsonReport(session)).ok());
}

TEST(BadServerTest, RefusalIsTold) { ExpectFailure(Fault::kRefusal, "HTTP 503: overloaded"); }

TEST(BadServerTest, RedirectIsNotFollowed) {
  ExpectFailure(Fault::kRedirect, "HTTP 307: a redirect to https://h/v1, which is not followed");
}

TEST(BadServerTest, PageInsteadOfEventsIsTold) {
  ExpectFailure(Fault::kPage, "without [DONE] (Content-Type text/html)");
}

TEST(BadServerTest, DeathInTheMiddleIsTold) {
  ExpectFailure(Fault::kBrokenStream, "the connection closed in the middle of the response");
}

TEST(BadServerTest, EndlessEventIsNotReadOn) {
  ExpectFailure(Fault::kEndlessEvent, "bytes or more exceeds 16777216");
}

TEST(BadServerTest, TextThatIsNotUtf8IsTold) {
  ExpectFailure(Fault::kBadUtf8, "a chunk is not valid JSON");
}

TEST(BadServerTest, NoServerIsTold) {
  Config config;
  {
    const MockServer server({});
    config.url = server.url();
  }
  EXPECT_THAT(std::string(Measure(config).status().message()), HasSubstr("cannot connect to 127."));
}

}  // namespace
}  // namespace weightless::loadtest
