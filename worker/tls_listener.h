// Accepts the TCP connections of a gRPC server that speaks TLS. gRPC could do that, but then it
// does not say whose handshake failed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::worker {

// Owns a thread.
class TlsListener {
 public:
  // Takes over the connection and closes it. Called by the listener's thread, one at a time.
  using OnAccept = std::function<void(int fd)>;

  // Listens on each address of `host` that this machine has; port 0: any free one, the same for
  // all. kInvalidArgument when it cannot: the port is in use on one of them, or there is none.
  static absl::StatusOr<std::unique_ptr<TlsListener>> Listen(const std::string& host, int port);
  ~TlsListener();  // stops accepting

  int port() const { return port_; }
  // Once.
  void Start(OnAccept on_accept);

 private:
  TlsListener(std::vector<int> fds, int port);
  void Run(const OnAccept& on_accept);
  void Accept(int listening_fd, const OnAccept& on_accept);

  const std::vector<int> fds_;  // non-blocking, listening
  const int port_;
  const int stop_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace weightless::worker
