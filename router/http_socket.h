// The bytes of one connection, in the clear or under TLS. Nothing here waits.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "router/tls.h"

namespace weightless::router {

// Used on one thread at a time.
class HttpSocket {
 public:
  // Uses `socket`, which is connected and becomes non-blocking, and does not own it. `tls` null: in
  // the clear. `send_buffer_bytes` 0: the system's choice.
  HttpSocket(int socket, const TlsContext* tls, int send_buffer_bytes);

  bool has_tls() const { return tls_ != nullptr; }
  // TlsSession::Handshake. Requires TLS.
  IoWait Handshake() { return tls_->Handshake(); }
  bool established() const { return tls_->established(); }
  // Logs why there is no session, unless the client just went. True when it spoke HTTP in the
  // clear; then the answer goes out in the clear, too.
  bool OnHandshakeFailed(bool was_late);

  // Into a part of `into`.
  IoResult Read(std::span<char> into);
  // Part of `bytes`, which are some; TlsSession::Write says what the next call begins with.
  IoResult Write(std::string_view bytes);
  // At most kMaxParts parts one after another; what does not go now is put into `rest`. False when
  // the connection has ended.
  bool WriteParts(std::initializer_list<std::string_view> parts, std::string& rest);
  // Nothing more is sent, which the client learns.
  void Finish();
  // It is being closed: whatever is called from now on finds that the connection has ended.
  void Abandon();

 private:
  static constexpr size_t kMaxParts = 4;

  int socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace weightless::router
