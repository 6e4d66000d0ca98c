#include "tools/addresses.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weightless::tools {
namespace {

TEST(AddressesTest, ListensOnTheFirstIpv4AddressElseTheFirst) {
  const auto v6 = FindAddresses("::1", 80), v4 = FindAddresses("127.0.0.1", 80);
  ASSERT_TRUE(v6.ok() && v4.ok());
  addrinfo first = **v6;
  EXPECT_EQ(&ListenAddress(first), &first);
  first.ai_next = v4->get();
  EXPECT_EQ(&ListenAddress(first), v4->get());
}

TEST(AddressesTest, ConnectsToTheAddressThatAccepts) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in bound{};
  bound.sin_family = AF_INET;
  bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(bound);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&bound), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const int port = ntohs(bound.sin_port);
  const auto v6 = FindAddresses("::1", port), v4 = FindAddresses("127.0.0.1", port);
  ASSERT_TRUE(v6.ok() && v4.ok());
  addrinfo first = **v6;
  first.ai_next = v4->get();

  const int fd = Connect(first, 1);
  EXPECT_GE(fd, 0);
  close(fd);
  close(listener);
  EXPECT_EQ(Connect(first, 1), -1);
}

}  // namespace
}  // namespace weightless::tools
