#include "common/grpc_tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/concat.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/pem.h"
#include "common/small_file.h"
#include "common/status.h"

namespace weightless {
namespace {

constexpr char kCertFlag[] = "--grpc-tls-cert-file";
constexpr char kKeyFlag[] = "--grpc-tls-key-file";
constexpr char kCaFlag[] = "--grpc-tls-ca-file";

// The first certificate of PEM text; those that follow are read, too.
absl::StatusOr<PemOwned<X509>> ParseCertificates(const std::string& text) {
  const PemOwned<BIO> reader = PemReader(text);
  PemOwned<X509> first = NextCertificate(reader.get());
  if (first == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("holds no PEM certificate");
  }
  while (NextCertificate(reader.get()) != nullptr) {
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) return absl::InvalidArgumentError("a later certificate in it is broken");
  return first;
}

absl::Status CheckKey(const std::string& text, X509* certificate) {
  ASSIGN_OR_RETURN(const PemOwned<EVP_PKEY> key, ParsePrivateKey(text));
  const bool fits = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (!fits) return absl::InvalidArgumentError("the key does not belong to the certificate");
  return absl::OkStatus();
}

absl::Status Bad(std::string_view flag, const std::string& path, const absl::Status& why) {
  return absl::InvalidArgumentError(Concat(flag, " ", path, ": ", std::string(why.message())));
}

absl::StatusOr<GrpcTls::Identity> ReadIdentity(const GrpcTlsFiles& files) {
  const auto cert = ReadSmallFile(files.cert, "certificates");
  if (!cert.ok()) return Bad(kCertFlag, files.cert, cert.status());
  const auto key = ReadSmallFile(files.key, "a private key");
  if (!key.ok()) return Bad(kKeyFlag, files.key, key.status());
  const auto ca = ReadSmallFile(files.ca, "certificates");
  if (!ca.ok()) return Bad(kCaFlag, files.ca, ca.status());

  const auto certificate = ParseCertificates(*cert);
  absl::Status status = certificate.status();
  if (status.ok()) status = CheckDates(certificate->get(), absl::Now()).status();
  if (!status.ok()) return Bad(kCertFlag, files.cert, status);
  status = CheckKey(*key, certificate->get());
  if (!status.ok()) return Bad(kKeyFlag, files.key, status);
  status = ParseCertificates(*ca).status();
  if (!status.ok()) return Bad(kCaFlag, files.ca, status);
  return GrpcTls::Identity{.cert = *cert, .key = *key, .ca = *ca};
}

// Text that differs when a file was changed or replaced.
std::string VersionOf(const GrpcTlsFiles& files) {
  std::string version;
  for (const std::string* path : {&files.cert, &files.key, &files.ca}) {
    struct stat now {};
    if (stat(path->c_str(), &now) != 0) now = {};
    version += Concat(now.st_dev, " ", now.st_ino, " ", now.st_size, " ", now.st_mtim.tv_sec, " ",
                      now.st_mtim.tv_nsec, "\n");
  }
  return version;
}

// A port that asks before each handshake whether there is a new certificate. gRPC's C++ interface
// has no such credentials; its C interface, which that one wraps, has.
class ReloadingCredentials : public grpc::ServerCredentials {
 public:
  explicit ReloadingCredentials(GrpcTls& tls)
      : tls_(tls),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, Fetch, this))) {}
  ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called for one connection at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* user_data, grpc_ssl_server_certificate_config** config) {
    auto& self = *static_cast<ReloadingCredentials*>(user_data);
    self.tls_.ReloadChanged();
    std::shared_ptr<const GrpcTls::Identity> identity = self.tls_.identity();
    if (identity == self.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = identity->key.c_str(),
                                             .cert_chain = identity->cert.c_str()};
    *config = grpc_ssl_server_certificate_config_create(identity->ca.c_str(), &pair, 1);
    self.given_ = std::move(identity);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  GrpcTls& tls_;
  grpc_server_credentials* const credentials_;
  std::shared_ptr<const GrpcTls::Identity> given_;  // what the port uses
};

}  // namespace

void AddGrpcTlsFlags(CLI::App& app, GrpcTlsFiles& files) {
  RefuseEmpty(*app.add_option(kCertFlag, files.cert,
                              "PEM certificate shown to the other side of gRPC, and its chain"));
  RefuseEmpty(*app.add_option(kKeyFlag, files.key, "PEM private key of it"));
  RefuseEmpty(*app.add_option(
      kCaFlag, files.ca, "PEM certificates of who signs the other side's; TLS needs all three"));
}

absl::Status CheckComplete(const GrpcTlsFiles& files) {
  if (files.cert.empty() && files.key.empty() && files.ca.empty()) return absl::OkStatus();
  for (const auto& [flag, path] :
       {std::pair(kCertFlag, &files.cert), std::pair(kKeyFlag, &files.key),
        std::pair(kCaFlag, &files.ca)}) {
    if (!path->empty()) continue;
    return absl::InvalidArgumentError(
        Concat(flag, " is missing: TLS of gRPC needs a certificate, its key and a CA"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GrpcTls>> GrpcTls::Load(const GrpcTlsFiles& files) {
  RETURN_IF_ERROR(CheckComplete(files));
  if (files.cert.empty()) return nullptr;
  std::string version = VersionOf(files);
  ASSIGN_OR_RETURN(Identity identity, ReadIdentity(files));
  return std::unique_ptr<GrpcTls>(new GrpcTls(files, std::move(version), std::move(identity)));
}

GrpcTls::GrpcTls(GrpcTlsFiles files, std::string version, Identity identity)
    : files_(std::move(files)),
      version_(std::move(version)),
      identity_(std::make_shared<const Identity>(std::move(identity))) {}

void GrpcTls::Refresh(bool only_changed) {
  const std::string version = VersionOf(files_);  // first: what changes later counts as new
  {
    absl::MutexLock lock(&mutex_);
    if (only_changed && version == version_) return;
    version_ = version;
  }
  auto identity = ReadIdentity(files_);
  if (!identity.ok()) {
    LogError("grpc_tls_not_reloaded", {{"reason", std::string(identity.status().message())}});
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (version != version_) return;  // another thread has read a later state
    identity_ = std::make_shared<const Identity>(*std::move(identity));
  }
  LogInfo("grpc_tls_reloaded", {{"cert_file", files_.cert}});
}

std::shared_ptr<const GrpcTls::Identity> GrpcTls::identity() const {
  absl::MutexLock lock(&mutex_);
  return identity_;
}

std::shared_ptr<grpc::ChannelCredentials> GrpcTls::ChannelCredentials() {
  ReloadChanged();
  const std::shared_ptr<const Identity> identity = this->identity();
  return grpc::SslCredentials({.pem_root_certs = identity->ca,
                               .pem_private_key = identity->key,
                               .pem_cert_chain = identity->cert});
}

std::shared_ptr<grpc::ServerCredentials> GrpcTls::ServerCredentials() {
  auto credentials = std::make_shared<ReloadingCredentials>(*this);
  absl::MutexLock lock(&mutex_);
  ports_.push_back(credentials);
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(GrpcTls* tls) {
  return tls != nullptr ? tls->ChannelCredentials() : grpc::InsecureChannelCredentials();
}

}  // namespace weightless
