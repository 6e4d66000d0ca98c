#include "common/grpc_log.h"

#include <grpc/support/log.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"

namespace weightless {
namespace {

constexpr int kMaxTlsLines = 20;
constexpr absl::Duration kTlsLogWindow = absl::Seconds(10);

// The peer of the server handshakes that this thread begins.
thread_local std::string accepting_from;
// Of the handshake that this thread worked on last: gRPC's lines do not say which it was.
thread_local std::string last_peer;
thread_local long last_verdict = X509_V_OK;  // on the peer's certificate

// Lines that strangers can cause must not fill a disk.
class LineLimit {
 public:
  // Nothing: leave this line out. Else how many were left out before it.
  std::optional<int> Take() {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    if (now - window_start_ >= kTlsLogWindow) {
      window_start_ = now;
      num_lines_ = 0;
    }
    if (num_lines_ >= kMaxTlsLines) {
      ++num_left_out_;
      return std::nullopt;
    }
    ++num_lines_;
    return std::exchange(num_left_out_, 0);
  }

 private:
  absl::Mutex mutex_;
  absl::Time window_start_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int num_lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

void LogFailure(std::string_view peer, std::string_view reason) {
  static LineLimit limit;
  const std::optional<int> left_out = limit.Take();
  if (!left_out.has_value()) return;
  if (*left_out > 0) LogWarning("tls_lines_left_out", {{"lines", *left_out}});
  if (peer.empty()) return LogWarning("tls_handshake_failed", {{"reason", reason}});
  LogWarning("tls_handshake_failed", {{"peer", peer}, {"reason", reason}});
}

// Each session keeps the address it was accepted from.
int PeerIndex();

std::string PeerOf(const SSL* ssl) {
  if (SSL_is_server(ssl) == 0) {
    const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    return name != nullptr ? name : "";
  }
  const auto* peer = static_cast<const std::string*>(SSL_get_ex_data(ssl, PeerIndex()));
  return peer != nullptr ? *peer : "";
}

// Every message of a handshake, in the thread that works on it.
void OnMessage(int, int, int, const void*, size_t, SSL* ssl, void*) {
  if (SSL_is_init_finished(ssl) != 0) return;
  last_peer = PeerOf(ssl);
  last_verdict = SSL_get_verify_result(ssl);
}

void OnNewSession(void* session, void*, CRYPTO_EX_DATA*, int index, long, void*) {
  auto* ssl = static_cast<SSL*>(session);
  if (!accepting_from.empty()) SSL_set_ex_data(ssl, index, new std::string(accepting_from));
  SSL_set_msg_callback(ssl, OnMessage);
}

void OnFreeSession(void*, void* peer, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<std::string*>(peer);
}

int PeerIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, OnNewSession, nullptr, OnFreeSession);
  return index;
}

// "Handshake failed ...: error:0A000086:SSL routines::certificate verify failed." has its reason
// at the end; of a certificate, the verdict says more.
void OnGrpcLine(gpr_log_func_args* args) {
  const std::string_view file = args->file, message = args->message;
  if (args->severity != GPR_LOG_SEVERITY_ERROR || !file.ends_with("ssl_transport_security.cc")) {
    return LogDebug("grpc", {{"message", message}});
  }
  const size_t colons = message.rfind("::");
  std::string_view reason = colons == std::string_view::npos ? message : message.substr(colons + 2);
  if (reason.ends_with('.')) reason.remove_suffix(1);
  if (last_verdict != X509_V_OK) reason = X509_verify_cert_error_string(last_verdict);
  LogFailure(last_peer, reason);
}

}  // namespace

void RouteGrpcLog() {
  PeerIndex();
  gpr_set_log_function(OnGrpcLine);
}

TlsPeerScope::TlsPeerScope(std::string peer) { accepting_from = std::move(peer); }

TlsPeerScope::~TlsPeerScope() { accepting_from.clear(); }

}  // namespace weightless
