// What gRPC and its TLS have to say, in our log.
#pragma once

#include <string>

namespace weightless {

// To be called once, before the first channel or server. A TLS handshake of gRPC that fails on our
// side becomes
//
//   WARNING event=tls_handshake_failed peer=ipv4:10.0.0.7:51234 reason="certificate has expired"
//
// Of a server that we asked, `peer` is the name that we asked for, and missing when that is an
// address. tls_log.h bounds how many are written. Nothing of a certificate or a key is logged.
// Other lines of gRPC repeat what our errors say: they are DEBUG.
void RouteGrpcLog();

// While it lives, TLS servers that this thread begins talk to `peer`.
class TlsPeerScope {
 public:
  explicit TlsPeerScope(std::string peer);
  ~TlsPeerScope();
  TlsPeerScope(const TlsPeerScope&) = delete;
  TlsPeerScope& operator=(const TlsPeerScope&) = delete;
};

}  // namespace weightless
