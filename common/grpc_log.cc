#include "common/grpc_log.h"

#include <grpc/support/log.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "common/tls_log.h"

namespace weightless {
namespace {

// The peer of the server handshakes that this thread begins.
thread_local std::string accepting_from;
// Of the handshake that this thread worked on last: gRPC's lines do not say which it was.
thread_local std::string last_peer;
thread_local long last_verdict = X509_V_OK;  // on the peer's certificate

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
  LogTlsFailure(last_peer, reason);
}

}  // namespace

void RouteGrpcLog() {
  PeerIndex();
  gpr_set_log_function(OnGrpcLine);
}

TlsPeerScope::TlsPeerScope(std::string peer) { accepting_from = std::move(peer); }

TlsPeerScope::~TlsPeerScope() { accepting_from.clear(); }

}  // namespace weightless
