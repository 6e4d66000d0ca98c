#include "tools/probe.h"

#include <grpcpp/grpcpp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>

#include "absl/time/clock.h"
#include "common/concat.h"
#include "common/host_port.h"
#include "proto/health.grpc.pb.h"
#include "tools/addresses.h"

namespace weightless::tools {
namespace {

namespace health = grpc::health::v1;

constexpr int kTimeoutSeconds = 1;

// What comes back for `request`, at least `min_size` bytes unless the other side ends before.
std::string ExchangePlain(int fd, const std::string& request, size_t min_size) {
  std::string answer;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return answer;
  }
  std::array<char, 256> buffer{};
  while (answer.size() < min_size) {
    const ssize_t count = recv(fd, buffer.data(), buffer.size(), 0);
    if (count <= 0) break;
    answer.append(buffer.data(), static_cast<size_t>(count));
  }
  return answer;
}

// Likewise, over a TLS session of its own. The library's writes would raise SIGPIPE.
std::string ExchangeTls(int fd, const std::string& request, size_t min_size) {
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  std::string answer;
  SSL_set_fd(session.get(), fd);
  if (SSL_connect(session.get()) != 1) return answer;
  if (SSL_write(session.get(), request.data(), static_cast<int>(request.size())) <= 0) {
    return answer;
  }
  std::array<char, 256> buffer{};
  while (answer.size() < min_size) {
    const int count = SSL_read(session.get(), buffer.data(), static_cast<int>(buffer.size()));
    if (count <= 0) break;
    answer.append(buffer.data(), static_cast<size_t>(count));
  }
  return answer;
}

// Whether the other side has closed the connection.
bool IsClosed(int fd) {
  pollfd connection = {.fd = fd, .events = POLLRDHUP, .revents = 0};
  return poll(&connection, 1, 0) == 1;
}

ProbeResult GetReady(const std::string& host, int port, bool tls) {
  const auto addresses = FindAddresses(host, port);
  const int fd = addresses.ok() ? Connect(**addresses, kTimeoutSeconds) : -1;
  if (fd < 0) return ProbeResult::kSilent;
  const std::string request =
      Concat("GET /ready HTTP/1.1\r\nHost: ", Bracketed(host), "\r\nConnection: close\r\n\r\n");
  constexpr std::string_view kOk = "HTTP/1.1 200";
  const std::string answer =
      tls ? ExchangeTls(fd, request, kOk.size()) : ExchangePlain(fd, request, kOk.size());
  const bool turned_away = tls && IsClosed(fd);
  close(fd);
  if (answer.size() < kOk.size()) {
    return turned_away ? ProbeResult::kNotReady : ProbeResult::kSilent;
  }
  return answer.starts_with(kOk) ? ProbeResult::kReady : ProbeResult::kNotReady;
}

}  // namespace

namespace {

std::shared_ptr<health::Health::Stub> ConnectHealth(const std::string& address, GrpcTls* tls,
                                                    const std::string& server_name) {
  grpc::ChannelArguments arguments;
  if (!server_name.empty()) arguments.SetSslTargetNameOverride(server_name);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return health::Health::NewStub(
      grpc::CreateCustomChannel(address, ChannelCredentials(tls), arguments));
}

}  // namespace

Probe GrpcHealthProbe(const std::string& address, GrpcTls* tls, const std::string& server_name) {
  // A channel keeps the certificate that it began with, so with TLS each probe has its own.
  std::shared_ptr<health::Health::Stub> kept;
  if (tls == nullptr) kept = ConnectHealth(address, tls, server_name);
  return [kept, address, tls, server_name] {
    const auto stub = kept != nullptr ? kept : ConnectHealth(address, tls, server_name);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // connecting makes progress only while a call waits
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kTimeoutSeconds));
    health::HealthCheckResponse response;
    const grpc::Status status = stub->Check(&context, {}, &response);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return ProbeResult::kSilent;
    }
    const bool serving = status.ok() && response.status() == health::HealthCheckResponse::SERVING;
    return serving ? ProbeResult::kReady : ProbeResult::kNotReady;
  };
}

Probe HttpReadyProbe(const std::string& host, int port) {
  return [host, port] { return GetReady(host, port, /*tls=*/false); };
}

Probe HttpsReadyProbe(const std::string& host, int port) {
  return [host, port] { return GetReady(host, port, /*tls=*/true); };
}

Watch::Watch(Probe probe, absl::Duration interval)
    : probe_(std::move(probe)), interval_(interval), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "watch");
}

Watch::~Watch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

Watch::State Watch::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

void Watch::Run() {
  absl::Time silent_since = absl::InfiniteFuture();
  for (;;) {
    const absl::Time start = absl::Now();
    const ProbeResult result = probe_();
    silent_since =
        result == ProbeResult::kSilent ? std::min(silent_since, start) : absl::InfiniteFuture();
    absl::MutexLock lock(&mutex_);
    state_.silence = std::max(absl::ZeroDuration(), absl::Now() - silent_since);
    if (result == ProbeResult::kReady) state_.was_ready = true;
    const absl::Duration interval = state_.was_ready ? interval_ : interval_ / 4;
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), interval)) return;
  }
}

}  // namespace weightless::tools
