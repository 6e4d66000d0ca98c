// TLS for the HTTP listener: the certificate and key in force, and one connection's session.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

struct ssl_ctx_st;
struct ssl_st;

namespace weightless::router {

// What a call on a non-blocking socket needs before it can go on.
enum class IoWait { kNothing, kReadable, kWritable };

// Bytes that were moved; without any, what to wait for. Neither: the connection has ended.
struct IoResult {
  size_t num_bytes = 0;
  IoWait wait = IoWait::kNothing;
};

// The server's side of one connection. Used on one thread at a time; nothing blocks. The process
// ignores SIGPIPE.
class TlsSession {
 public:
  TlsSession(ssl_ctx_st* context, int socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Goes on with the handshake. kNothing: it is established, or has failed for good.
  IoWait Handshake();
  bool established() const { return established_; }
  // Why it failed; empty when the client just went. Holds nothing that the client sent.
  const std::string& failure() const { return failure_; }
  // It failed because the client speaks HTTP without TLS.
  bool is_plain_http() const { return is_plain_http_; }

  IoResult Read(std::span<char> into);
  // After a call that has to wait, the next one begins with the same bytes. `bytes` is not empty.
  IoResult Write(std::string_view bytes);
  // Tells the client that nothing more comes.
  void Finish();
  // The socket is being closed: every call from now on finds that the connection has ended.
  void Abandon() { broken_ = true; }

 private:
  IoResult ResultOf(int returned, size_t num_bytes);

  ssl_st* const session_;
  bool established_ = false;
  bool broken_ = false;  // no further call may reach the library
  bool is_plain_http_ = false;
  std::string failure_;
};

// Thread-safe. TLS 1.2 and 1.3 with forward secrecy and authenticated encryption, HTTP/1.1 by ALPN.
class TlsContext {
 public:
  // Of PEM files: a certificate, followed by its chain, and its private key without a passphrase.
  // kInvalidArgument names the file and what is wrong: not there, no such thing in it, a key of
  // another certificate, a certificate that `now` is too early or too late for.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(std::string certificate_file,
                                                          std::string key_file, absl::Time now);

  // Reads the files again, for connections that come from now on. After an error what was in force
  // stays so.
  absl::Status Reload(absl::Time now);

  std::unique_ptr<TlsSession> NewSession(int socket) const;
  // When the certificate in force expires.
  absl::Time expires_at() const;

 private:
  // One certificate and key, ready for use.
  struct Identity {
    std::shared_ptr<ssl_ctx_st> context;
    absl::Time expires_at;
  };

  TlsContext(std::string certificate_file, std::string key_file)
      : certificate_file_(std::move(certificate_file)), key_file_(std::move(key_file)) {}
  absl::StatusOr<Identity> ReadIdentity(absl::Time now) const;

  const std::string certificate_file_, key_file_;
  mutable absl::Mutex mutex_;
  Identity identity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weightless::router
