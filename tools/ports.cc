#include "tools/ports.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "tools/addresses.h"

namespace weightless::tools {
namespace {

// A listening socket, closed with the object.
class Listener {
 public:
  static absl::StatusOr<Listener> Open(const std::string& host, int port);
  explicit Listener(int fd) : fd_(fd) {}
  ~Listener() {
    if (fd_ >= 0) close(fd_);
  }
  Listener(Listener&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Listener& operator=(Listener&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int port() const {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(address).sin_port);
  }

 private:
  int fd_;
};

absl::StatusOr<Listener> Listener::Open(const std::string& host, int port) {
  ASSIGN_OR_RETURN(const AddressList found, FindAddresses(host, port));
  const addrinfo& address = ListenAddress(*found);
  Listener listener(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.fd_, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(listener.fd_, 1) == 0) {
    return listener;
  }
  const std::string message = Concat("cannot listen on ", host, ":", port, ": ", strerror(errno));
  if (errno == EADDRINUSE) return absl::AlreadyExistsError(message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<int> ProbePort(const std::string& host, int port) {
  ASSIGN_OR_RETURN(const Listener listener, Listener::Open(host, port));
  return listener.port();
}

absl::StatusOr<std::vector<int>> FreeLoopbackPorts(int count) {
  std::vector<Listener> listeners;  // held until the end, so that the ports differ
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Listener listener, Listener::Open("127.0.0.1", 0));
    ports.push_back(listener.port());
    listeners.push_back(std::move(listener));
  }
  return ports;
}

}  // namespace weightless::tools
