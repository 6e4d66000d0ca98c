#include "router/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <utility>

#include "common/check.h"
#include "common/concat.h"
#include "common/pem.h"
#include "common/small_file.h"
#include "common/status.h"

namespace weightless::router {
namespace {

constexpr char kCertificateFlag[] = "--tls-cert-file ";
constexpr char kKeyFlag[] = "--tls-key-file ";
// Forward secrecy and authenticated encryption only; TLS 1.3 has no others.
constexpr char kCiphers12[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr std::string_view kHttp11 = "http/1.1";

// The reason of the latest error in this thread.
std::string LastReason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "unknown error";
}

// Picks HTTP/1.1, or refuses a client that offers only other protocols.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  for (unsigned int i = 0; i < offered_size; i += 1u + offered[i]) {
    const std::string_view name(reinterpret_cast<const char*>(offered + i + 1), offered[i]);
    if (name != kHttp11) continue;
    *out = offered + i + 1;
    *out_size = offered[i];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

absl::Status Bad(std::string_view flag, const std::string& file, std::string_view why) {
  return absl::InvalidArgumentError(Concat(flag, file, ": ", why));
}

std::shared_ptr<ssl_ctx_st> NewContext() {
  std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  CHECK(context != nullptr);
  SSL_CTX* ctx = context.get();
  CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1);
  CHECK(SSL_CTX_set_cipher_list(ctx, kCiphers12) == 1);
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);  // tickets resume without one
  SSL_CTX_set_alpn_select_cb(ctx, ChooseProtocol, nullptr);
  return context;
}

// The certificate of the file, and those that follow it as its chain.
absl::Status UseCertificate(SSL_CTX* ctx, const std::string& file, absl::Time now,
                            absl::Time& expires_at) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, "a certificate"));
  const PemOwned<BIO> reader = PemReader(text);
  const PemOwned<X509> certificate = LeafCertificate(reader.get());
  if (certificate == nullptr) return absl::InvalidArgumentError("holds no PEM certificate");
  ASSIGN_OR_RETURN(expires_at, CheckDates(certificate.get(), now));
  if (SSL_CTX_use_certificate(ctx, certificate.get()) != 1) {
    return absl::InvalidArgumentError(Concat("the certificate is refused: ", LastReason()));
  }
  for (;;) {
    PemOwned<X509> issuer = NextCertificate(reader.get());
    if (issuer == nullptr) break;
    CHECK(SSL_CTX_add0_chain_cert(ctx, issuer.release()) == 1);
  }
  if (ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat("a certificate of its chain is broken: ", LastReason()));
}

absl::Status UseKey(SSL_CTX* ctx, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, "a private key"));
  ASSIGN_OR_RETURN(const PemOwned<EVP_PKEY> key, ParsePrivateKey(text));
  if (SSL_CTX_use_PrivateKey(ctx, key.get()) != 1) {
    return absl::InvalidArgumentError(
        Concat("the key does not belong to the certificate: ", LastReason()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsContext::Identity> TlsContext::ReadIdentity(absl::Time now) const {
  Identity identity{NewContext(), {}};
  ERR_clear_error();
  absl::Status status =
      UseCertificate(identity.context.get(), certificate_file_, now, identity.expires_at);
  if (!status.ok()) return Bad(kCertificateFlag, certificate_file_, std::string(status.message()));
  ERR_clear_error();
  status = UseKey(identity.context.get(), key_file_);
  ERR_clear_error();
  if (!status.ok()) return Bad(kKeyFlag, key_file_, std::string(status.message()));
  return identity;
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(std::string certificate_file,
                                                             std::string key_file, absl::Time now) {
  std::unique_ptr<TlsContext> context(
      new TlsContext(std::move(certificate_file), std::move(key_file)));
  RETURN_IF_ERROR(context->Reload(now));
  return context;
}

absl::Status TlsContext::Reload(absl::Time now) {
  ASSIGN_OR_RETURN(Identity identity, ReadIdentity(now));
  absl::MutexLock lock(&mutex_);
  identity_ = std::move(identity);
  return absl::OkStatus();
}

std::unique_ptr<TlsSession> TlsContext::NewSession(int socket) const {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<TlsSession>(identity_.context.get(), socket);
}

absl::Time TlsContext::expires_at() const {
  absl::MutexLock lock(&mutex_);
  return identity_.expires_at;
}

TlsSession::TlsSession(ssl_ctx_st* context, int socket) : session_(SSL_new(context)) {
  CHECK(session_ != nullptr);
  CHECK(SSL_set_fd(session_, socket) == 1);
  SSL_set_accept_state(session_);
}

TlsSession::~TlsSession() { SSL_free(session_); }

IoResult TlsSession::ResultOf(int returned, size_t num_bytes) {
  if (returned > 0) return {num_bytes, IoWait::kNothing};
  switch (SSL_get_error(session_, returned)) {
    case SSL_ERROR_WANT_READ:
      return {0, IoWait::kReadable};
    case SSL_ERROR_WANT_WRITE:
      return {0, IoWait::kWritable};
    case SSL_ERROR_ZERO_RETURN:  // the client has said that nothing more comes
      return {};
    default:
      broken_ = true;
      return {};
  }
}

IoWait TlsSession::Handshake() {
  if (broken_) return IoWait::kNothing;
  ERR_clear_error();
  const int returned = SSL_do_handshake(session_);
  const IoResult result = ResultOf(returned, 1);
  established_ = result.num_bytes > 0;
  if (established_ || result.wait != IoWait::kNothing) return result.wait;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  is_plain_http_ = reason == SSL_R_HTTP_REQUEST;
  if (ERR_peek_error() != 0 && reason != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    failure_ = LastReason();
  }
  return IoWait::kNothing;
}

IoResult TlsSession::Read(std::span<char> into) {
  if (broken_) return {};
  ERR_clear_error();
  size_t num_bytes = 0;
  const int returned = SSL_read_ex(session_, into.data(), into.size(), &num_bytes);
  return ResultOf(returned, num_bytes);
}

IoResult TlsSession::Write(std::string_view bytes) {
  if (broken_) return {};
  ERR_clear_error();
  size_t num_bytes = 0;
  const int returned = SSL_write_ex(session_, bytes.data(), bytes.size(), &num_bytes);
  return ResultOf(returned, num_bytes);
}

void TlsSession::Finish() {
  if (broken_ || !established_) return;
  ERR_clear_error();
  SSL_shutdown(session_);
}

}  // namespace weightless::router
