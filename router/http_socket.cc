#include "router/http_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/check.h"
#include "common/tls_log.h"

namespace weightless::router {
namespace {

void SetOption(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

// The numeric address of the other side.
std::string PeerAddress(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "gone";
  const void* number = &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
  if (address.ss_family == AF_INET6) {
    number = &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  }
  return inet_ntop(address.ss_family, number, text.data(), text.size()) != nullptr ? text.data()
                                                                                   : "unknown";
}

}  // namespace

HttpSocket::HttpSocket(int socket, const TlsContext* tls, int send_buffer_bytes) : socket_(socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  if (send_buffer_bytes > 0) SetOption(socket, SOL_SOCKET, SO_SNDBUF, send_buffer_bytes);
  if (tls != nullptr) tls_ = tls->NewSession(socket);
}

bool HttpSocket::OnHandshakeFailed(bool was_late) {
  const std::string reason = was_late ? "not complete in time" : tls_->failure();
  if (!reason.empty()) LogTlsFailure(PeerAddress(socket_), reason);
  if (was_late || !tls_->is_plain_http()) return false;
  tls_.reset();
  return true;
}

IoResult HttpSocket::Read(std::span<char> into) {
  if (tls_ != nullptr) return tls_->Read(into);
  const ssize_t received = recv(socket_, into.data(), into.size(), 0);
  if (received > 0) return {static_cast<size_t>(received), IoWait::kNothing};
  return {0, received < 0 && WouldBlock() ? IoWait::kReadable : IoWait::kNothing};
}

IoResult HttpSocket::Write(std::string_view bytes) {
  if (tls_ != nullptr) return tls_->Write(bytes);
  const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return {static_cast<size_t>(sent), IoWait::kNothing};
  return {0, WouldBlock() ? IoWait::kWritable : IoWait::kNothing};
}

bool HttpSocket::WriteParts(std::initializer_list<std::string_view> parts, std::string& rest) {
  rest.clear();
  size_t num_sent = 0;
  if (tls_ == nullptr) {
    CHECK(parts.size() <= kMaxParts);
    std::array<iovec, kMaxParts> pieces{};
    std::transform(parts.begin(), parts.end(), pieces.begin(), [](std::string_view part) {
      return iovec{const_cast<char*>(part.data()), part.size()};
    });
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && !WouldBlock()) return false;
    num_sent = static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  for (const std::string_view part : parts) {
    const size_t skipped = std::min(num_sent, part.size());
    rest.append(part.substr(skipped));
    num_sent -= skipped;
  }
  return true;  // under TLS all of it is in `rest`, to go out as one record
}

void HttpSocket::Finish() {
  if (tls_ != nullptr) tls_->Finish();
  shutdown(socket_, SHUT_WR);
}

void HttpSocket::Abandon() {
  socket_ = -1;
  if (tls_ != nullptr) tls_->Abandon();
}

}  // namespace weightless::router
