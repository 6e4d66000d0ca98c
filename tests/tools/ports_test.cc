#include "tools/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "common/concat.h"

namespace weightless::tools {
namespace {

using ::testing::HasSubstr;

TEST(PortsTest, GivesDifferentFreePorts) {
  const auto ports = FreeLoopbackPorts(8);
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(std::set<int>(ports->begin(), ports->end()).size(), 8u);
  EXPECT_EQ(*ProbePort("127.0.0.1", ports->front()), ports->front());
}

TEST(PortsTest, NamesAPortInUse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);

  const absl::Status status = ProbePort("127.0.0.1", port).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Concat("127.0.0.1:", port)));
  close(fd);
}

TEST(PortsTest, NamesAHostThatIsNotHere) {
  const absl::Status status = ProbePort("no host", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no host"));
}

}  // namespace
}  // namespace weightless::tools
