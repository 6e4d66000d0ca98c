// TLS in front of a plain server, with a certificate made on the spot.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace weightless::loadtest {

// Listens on a loopback port of its own and forwards to `plain_port`, from a thread of its own. The
// certificate is self-signed and names 127.0.0.1, but not localhost.
class TlsProxy {
 public:
  explicit TlsProxy(uint16_t plain_port);
  ~TlsProxy();

  uint16_t port() const;
  const std::string& certificate_pem() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightless::loadtest
