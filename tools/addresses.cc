#include "tools/addresses.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/concat.h"

namespace weightless::tools {

absl::StatusOr<AddressList> FindAddresses(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(Concat("host '", host, "': ", gai_strerror(error)));
  }
  return AddressList(found, freeaddrinfo);
}

const addrinfo& ListenAddress(const addrinfo& addresses) {
  for (const addrinfo* address = &addresses; address != nullptr; address = address->ai_next) {
    if (address->ai_family == AF_INET) return *address;
  }
  return addresses;
}

int Connect(const addrinfo& addresses, int timeout_seconds) {
  const timeval timeout{.tv_sec = timeout_seconds, .tv_usec = 0};
  for (const addrinfo* address = &addresses; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;  // no such addresses on this machine
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

}  // namespace weightless::tools
