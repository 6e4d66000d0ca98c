#include "common/host_port.h"

#include <gtest/gtest.h>

namespace weightless {
namespace {

TEST(HostPortTest, ThePortFollowsTheLastColon) {
  const auto name = ParseHostPort("worker.local:9000");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->host, "worker.local");
  EXPECT_EQ(name->port, 9000);
  EXPECT_EQ(ParseHostPort("127.0.0.1:0")->port, 0);
  EXPECT_EQ(ParseHostPort("[::1]:65535")->host, "[::1]");
}

TEST(HostPortTest, RefusesWhatHasNoHostOrNoPort) {
  for (const char* text : {"", ":", "host", "host:", ":80", "host:65536", "host:-1", "host:+1",
                           "host: 80", "host:80x", "host:99999999999999999999"}) {
    EXPECT_FALSE(ParseHostPort(text).has_value()) << text;
  }
}

TEST(HostPortTest, PutsIpv6InBracketsAndTakesItOut) {
  for (const char* host : {"::1", "[::1]"}) {
    EXPECT_EQ(Bracketed(host), "[::1]");
    EXPECT_EQ(Unbracketed(host), "::1");
  }
  for (const char* host : {"127.0.0.1", "localhost", ""}) {
    EXPECT_EQ(Bracketed(host), host);
    EXPECT_EQ(Unbracketed(host), host);
  }
}

TEST(HostPortTest, KnowsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "[::]", "10.0.0.1", "worker", "128.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace weightless
