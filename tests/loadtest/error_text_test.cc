#include "loadtest/error_text.h"

#include <gtest/gtest.h>

namespace weightless::loadtest {
namespace {

TEST(ErrorTextTest, ExcerptIsOneLineOfAsciiOfBoundedLength) {
  EXPECT_EQ(Excerpt("two\r\nlines\t\"quoted\""), "two  lines \"quoted\"");
  EXPECT_EQ(Excerpt("\xff\x1b[2J caf\xc3\xa9"), "\\xff\\x1b[2J caf\\xc3\\xa9");
  EXPECT_EQ(Excerpt(std::string(1000, 'a')), std::string(300, 'a') + "...");
}

TEST(ErrorTextTest, RefusalNamesStatusAndBodyOrWhereARedirectLeads) {
  EXPECT_EQ(RefusalText({.status = 503}, "overloaded"), "HTTP 503: overloaded");
  EXPECT_EQ(RefusalText({.status = 308, .location = "https://h/v1/models"}, "moved"),
            "HTTP 308: a redirect to https://h/v1/models, which is not followed");
  EXPECT_EQ(RefusalText({.status = 304}, ""), "HTTP 304");
}

}  // namespace
}  // namespace weightless::loadtest
