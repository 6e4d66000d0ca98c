// Mutual TLS between router, workers and health probes: who we are, and which CA says who the
// others are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace CLI {
class App;
}
namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace weightless {

// Paths of PEM files; all empty: no TLS.
struct GrpcTlsFiles {
  std::string cert;  // our certificate, then its chain
  std::string key;   // its private key, without a passphrase
  std::string ca;    // certificates of who may sign the other side's certificate
};

// --grpc-tls-cert-file, --grpc-tls-key-file and --grpc-tls-ca-file; given empty is an error.
void AddGrpcTlsFlags(CLI::App& app, GrpcTlsFiles& files);
// All three or none; kInvalidArgument names the flag that is missing.
absl::Status CheckComplete(const GrpcTlsFiles& files);

// What the files held when they were last read and good. Thread-safe.
class GrpcTls {
 public:
  // What is used for new connections.
  struct Identity {
    std::string cert, key, ca;
  };

  // Null without files. kInvalidArgument names flag, file and what is wrong: cannot be read, no
  // certificate or key in it, a key of another certificate, a certificate out of date.
  static absl::StatusOr<std::unique_ptr<GrpcTls>> Load(const GrpcTlsFiles& files);

  // Reads the files again, and logs event=grpc_tls_reloaded or, when they are bad,
  // event=grpc_tls_not_reloaded; then the old ones stay in force. Connections that are established
  // live on.
  void Reload() { Refresh(/*only_changed=*/false); }
  // As Reload, but only when a file was changed since the last attempt: a few stat calls. Called
  // for every new connection, so that certificates are renewed without a word to the process.
  void ReloadChanged() { Refresh(/*only_changed=*/true); }

  std::shared_ptr<const Identity> identity() const;

  // Credentials of a channel that is made now.
  std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials();
  // Credentials of a port: every client must show a certificate of the CA. Follows the files.
  // Connections must be handed to the port one at a time; this object outlives the server.
  std::shared_ptr<grpc::ServerCredentials> ServerCredentials();

 private:
  GrpcTls(GrpcTlsFiles files, std::string version, Identity identity);
  void Refresh(bool only_changed);

  const GrpcTlsFiles files_;
  mutable absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_);  // of the files at the last attempt
  std::shared_ptr<const Identity> identity_ ABSL_GUARDED_BY(mutex_);  // shared with connections
  // gRPC calls them for as long as their server lives, but keeps them no longer than its builder.
  std::vector<std::shared_ptr<grpc::ServerCredentials>> ports_ ABSL_GUARDED_BY(mutex_);
};

// Those of `tls`, or without it insecure ones.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(GrpcTls* tls);

}  // namespace weightless
