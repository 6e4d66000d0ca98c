#include "tools/probe.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/concat.h"
#include "proto/health.grpc.pb.h"

namespace weightless::tools {
namespace {

// Listens on a loopback port. The kernel connects clients; nobody accepts them.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    listen(fd_, 1);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// Answers one connection on a loopback port with fixed bytes.
class OneAnswer {
 public:
  explicit OneAnswer(const std::string& answer) {
    thread_ = std::thread([this, answer] {
      const int client = accept(listener_.fd(), nullptr, nullptr);
      char request[512];
      recv(client, request, sizeof(request), 0);
      send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(client);
    });
  }
  ~OneAnswer() { thread_.join(); }
  int port() const { return listener_.port(); }

 private:
  const Listener listener_;
  std::thread thread_;
};

TEST(ProbeTest, HttpOkIsReady) {
  const OneAnswer server("HTTP/1.1 200 OK\r\n\r\n");
  EXPECT_EQ(HttpReadyProbe("127.0.0.1", server.port())(), ProbeResult::kReady);
}

TEST(ProbeTest, AnyOtherHttpAnswerIsNotReady) {
  const OneAnswer server("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  EXPECT_EQ(HttpReadyProbe("127.0.0.1", server.port())(), ProbeResult::kNotReady);
}

TEST(ProbeTest, AClosedConnectionIsSilence) {
  const OneAnswer server("");
  EXPECT_EQ(HttpReadyProbe("127.0.0.1", server.port())(), ProbeResult::kSilent);
}

// So a router at its limit of connections refuses one under TLS.
TEST(ProbeTest, AClosedConnectionIsNotReadyUnderTls) {
  const OneAnswer server("");
  EXPECT_EQ(HttpsReadyProbe("127.0.0.1", server.port())(), ProbeResult::kNotReady);
}

TEST(ProbeTest, AConnectionThatStaysOpenIsSilenceUnderTls) {
  const Listener hangs;
  EXPECT_EQ(HttpsReadyProbe("127.0.0.1", hangs.port())(), ProbeResult::kSilent);
}

class Health : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(serving ? grpc::health::v1::HealthCheckResponse::SERVING
                                 : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    return grpc::Status::OK;
  }
  std::atomic<bool> serving = false;
};

TEST(ProbeTest, FollowsTheGrpcHealthService) {
  Health health;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&health);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const Probe probe = GrpcHealthProbe(Concat("127.0.0.1:", port));

  EXPECT_EQ(probe(), ProbeResult::kNotReady);
  health.serving = true;
  EXPECT_EQ(probe(), ProbeResult::kReady);
  server->Shutdown();
  EXPECT_EQ(probe(), ProbeResult::kSilent);
}

TEST(WatchTest, RemembersReadinessAndMeasuresSilence) {
  absl::Notification probed;
  int count = 0;  // of the watch's thread
  const auto probe = [&] {
    if (++count == 1) return ProbeResult::kReady;
    if (count == 3) probed.Notify();
    return ProbeResult::kSilent;
  };
  const Watch watch(probe, absl::Milliseconds(1));
  probed.WaitForNotification();
  EXPECT_TRUE(watch.state().was_ready);
  EXPECT_GE(watch.state().silence, absl::ZeroDuration());
}

}  // namespace
}  // namespace weightless::tools
