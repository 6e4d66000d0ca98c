#include "worker/tls_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/concat.h"
#include "common/grpc_log.h"
#include "common/host_port.h"
#include "common/log.h"

namespace weightless::worker {
namespace {

constexpr int kBacklog = 128;
// Without a file descriptor left, before the next try.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses LookUp(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(Unbracketed(host).c_str(), nullptr, &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

in_port_t& PortOf(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// A listening socket, or -1 and errno; `port` becomes the one it got.
int Open(const addrinfo& info, int& port) {
  const int fd = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // "::" takes connections of version 4, too.
  if (info.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  PortOf(address) = htons(static_cast<in_port_t>(port));
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), info.ai_addrlen) != 0 ||
      listen(fd, kBacklog) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  port = ntohs(PortOf(address));
  return fd;
}

// As gRPC writes it: ipv4:10.0.0.7:51234.
std::string PeerName(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view text = host;
  if (address.ss_family == AF_INET) return Concat("ipv4:", text, ":", std::string_view(port));
  if (text.starts_with(kMapped) && text.find('.') != std::string_view::npos) {
    return Concat("ipv4:", text.substr(kMapped.size()), ":", std::string_view(port));
  }
  return Concat("ipv6:[", text, "]:", std::string_view(port));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsListener>> TlsListener::Listen(const std::string& host,
                                                                 int port) {
  // gRPC's rule: 0.0.0.0 means every address where the machine knows version 6.
  std::vector<int> fds;
  if (host == "0.0.0.0") {
    const Addresses any = LookUp("::");
    if (any != nullptr) fds.push_back(Open(*any, port));
    if (!fds.empty() && fds[0] < 0) fds.clear();
  }
  const Addresses found = fds.empty() ? LookUp(host) : Addresses(nullptr, freeaddrinfo);
  for (const addrinfo* info = found.get(); info != nullptr; info = info->ai_next) {
    const int fd = Open(*info, port);
    if (fd >= 0) fds.push_back(fd);
    if (fd >= 0 || errno != EADDRINUSE) continue;  // the machine may lack this address
    // Whoever looks the name up must not reach another program.
    for (const int open : fds) close(open);
    fds.clear();
    break;
  }
  if (fds.empty()) {
    return absl::InvalidArgumentError(
        Concat("cannot listen on ", host, ":", port, ": in use, or no address of this machine"));
  }
  return std::unique_ptr<TlsListener>(new TlsListener(std::move(fds), port));
}

TlsListener::TlsListener(std::vector<int> fds, int port)
    : fds_(std::move(fds)), port_(port), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  CHECK(stop_fd_ >= 0);
}

TlsListener::~TlsListener() {
  const uint64_t one = 1;
  CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const int fd : fds_) close(fd);
  close(stop_fd_);
}

void TlsListener::Start(OnAccept on_accept) {
  thread_ = std::thread([this, on_accept = std::move(on_accept)] {
    pthread_setname_np(pthread_self(), "accept");
    Run(on_accept);
  });
}

void TlsListener::Run(const OnAccept& on_accept) {
  std::vector<pollfd> fds = {{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  for (const int fd : fds_) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  for (;;) {
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    for (const pollfd& listening : fds) {
      if (listening.revents != 0) Accept(listening.fd, on_accept);
    }
  }
}

void TlsListener::Accept(int listening_fd, const OnAccept& on_accept) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  const int fd = accept4(listening_fd, reinterpret_cast<sockaddr*>(&address), &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    LogError("accept_failed", {{"reason", std::strerror(errno)}});
    absl::SleepFor(kAcceptPause);
    return;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const TlsPeerScope peer(PeerName(address, size));
  on_accept(fd);
}

}  // namespace weightless::worker
