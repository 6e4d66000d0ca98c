#include "worker/tls_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "common/bounded_queue.h"

namespace weightless::worker {
namespace {

using ::testing::HasSubstr;

// A connection to a loopback port, or -1.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<in_port_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

TEST(TlsListenerTest, HandsConnectionsOverOneByOne) {
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    BoundedQueue<int> accepted(10);
    auto listener = TlsListener::Listen(host, 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    (*listener)->Start([&](int fd) { EXPECT_TRUE(accepted.Push(int{fd})); });
    for (int i = 0; i < 3; ++i) {
      const int client = Connect((*listener)->port());
      ASSERT_GE(client, 0) << host;
      const std::optional<int> server = accepted.Pop(absl::Now() + absl::Seconds(20));
      ASSERT_TRUE(server.has_value()) << host;
      EXPECT_EQ(write(client, "x", 1), 1);
      close(client);
      close(*server);
    }
    const int port = (*listener)->port();
    listener->reset();
    EXPECT_EQ(Connect(port), -1) << host;
  }
}

TEST(TlsListenerTest, NamesTheAddressThatItCannotListenOn) {
  const auto first = TlsListener::Listen("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  for (const char* host : {"127.0.0.1", "192.0.2.1"}) {
    const auto second = TlsListener::Listen(host, (*first)->port());
    EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(host));
  }
}

}  // namespace
}  // namespace weightless::worker
