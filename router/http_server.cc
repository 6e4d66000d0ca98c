#include "router/http_server.h"

#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/concat.h"
#include "common/log.h"
#include "router/api_error.h"
#include "router/http_connection.h"
#include "router/http_head.h"
#include "router/random_id.h"

namespace weightless::router {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr int kBacklog = 4096;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

// One thread with its connections and the one timer that drives their time-outs.
class Loop {
 public:
  Loop(HttpShared& shared, std::atomic<int>& num_connections)
      : shared_(shared),
        num_connections_(num_connections),
        io_(1),
        work_(io_.get_executor()),
        timer_(io_) {}

  void Start() {
    ScheduleTick();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "http");
      io_.run();
    });
  }

  // Thread-safe.
  void Adopt(int socket) {
    asio::post(io_, [this, socket] {
      auto connection =
          ServeConnection(io_, socket, shared_, [this](HttpConnection* ended) { Forget(ended); });
      HttpConnection* const key = connection.get();
      connections_.emplace(key, std::move(connection));
    });
  }

  // Thread-safe: ends all connections; the thread ends when they have.
  void Stop() {
    asio::post(io_, [this] {
      stopping_ = true;
      timer_.cancel();
      for (const auto& [key, connection] : connections_) connection->Close();
      work_.reset();
    });
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  asio::io_context& io() { return io_; }

 private:
  void Forget(HttpConnection* ended) {
    // Its last calls may still be on the stack.
    asio::post(io_, [this, ended] {
      connections_.erase(ended);
      --num_connections_;
      shared_.metrics.connections_open.Add(-1);
    });
  }

  void ScheduleTick() {
    timer_.expires_after(absl::ToChronoNanoseconds(shared_.options.tick));
    timer_.async_wait([this](error_code) {
      if (stopping_) return;
      const absl::Time now = shared_.clock.Now();
      for (const auto& [key, connection] : connections_) connection->Tick(now);
      ScheduleTick();
    });
  }

  HttpShared& shared_;
  std::atomic<int>& num_connections_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer timer_;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  bool stopping_ = false;
  std::thread thread_;
};

// Numeric addresses as they are; of a name the first IPv4 address, else the first.
tcp::endpoint Resolve(asio::io_context& io, const std::string& host, int port, error_code& ec) {
  const auto number = static_cast<asio::ip::port_type>(port);
  const auto address = asio::ip::make_address(host, ec);
  if (!ec) return {address, number};
  const auto results = tcp::resolver(io).resolve(host, "", ec);
  if (ec) return {};
  tcp::endpoint found = *results.begin();
  for (const auto& result : results) {
    if (!result.endpoint().address().is_v4()) continue;
    found = result.endpoint();
    break;
  }
  found.port(number);
  return found;
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& http_options, HttpHandler& handler, const Clock& clock,
       RouterMetrics& metrics, const TlsContext* tls)
      : options(http_options), slow_pool(1), shared{options, handler, clock,
                                                    metrics, tls,     slow_pool} {
    for (int i = 0; i < options.num_threads; ++i) {
      loops.push_back(std::make_unique<Loop>(shared, num_connections));
    }
    acceptor = std::make_unique<tcp::acceptor>(loops[0]->io());
    pause = std::make_unique<asio::steady_timer>(loops[0]->io());
  }

  void Accept();
  int AcceptOne();
  void TurnAway(int socket);

  const HttpOptions options;
  asio::thread_pool slow_pool;
  HttpShared shared;
  std::atomic<int> num_connections = 0;
  std::vector<std::unique_ptr<Loop>> loops;
  std::unique_ptr<tcp::acceptor> acceptor;  // on the thread of loops[0]
  std::unique_ptr<asio::steady_timer> pause;
  size_t next_loop = 0;
  int port = 0;
  bool stopped = false;
};

void HttpServer::Impl::Accept() {
  acceptor->async_wait(tcp::acceptor::wait_read, [this](error_code ec) {
    if (ec || !acceptor->is_open()) return;
    int error = 0;
    while (error == 0 || error == ECONNABORTED || error == EINTR) error = AcceptOne();
    if (error == EAGAIN || error == EWOULDBLOCK) return Accept();
    // No descriptor or no memory is left, and whoever waits would wake us again at once.
    LogWarning("accept_failed", {{"reason", std::strerror(error)}});
    pause->expires_after(kAcceptPause);
    pause->async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor->is_open()) Accept();
    });
  });
}

// 0, or the error number that says why there is no further connection.
int HttpServer::Impl::AcceptOne() {
  const int socket =
      accept4(acceptor->native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket < 0) return errno;
  if (num_connections >= options.max_connections) {
    TurnAway(socket);
    return 0;
  }
  ++num_connections;
  shared.metrics.connections_open.Add(1);
  loops[next_loop]->Adopt(socket);
  next_loop = (next_loop + 1) % loops.size();
  return 0;
}

// A handshake only to say no would cost more than it is worth: under TLS it just ends.
void HttpServer::Impl::TurnAway(int socket) {
  shared.CountResponse(503);
  if (shared.tls != nullptr) {
    close(socket);
    return;
  }
  const HttpResponse response = ErrorResponse(absl::ResourceExhaustedError(
      Concat("the server has ", options.max_connections, " connections, its limit")));
  const std::string text = ResponseHeadText(response, {11, false, response.body.size()},
                                            RandomHexId(), shared.clock.Now()) +
                           response.body;
  // Best effort: a new socket has room for this.
  (void)!send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  close(socket);
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler, const Clock& clock,
                       RouterMetrics& metrics, const TlsContext* tls)
    : impl_(std::make_unique<Impl>(options, handler, clock, metrics, tls)) {}

HttpServer::~HttpServer() { Stop(); }

absl::Status HttpServer::Listen(const std::string& host, int port) {
  error_code ec;
  const tcp::endpoint endpoint = Resolve(impl_->loops[0]->io(), host, port, ec);
  tcp::acceptor& acceptor = *impl_->acceptor;
  if (!ec) acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(kBacklog, ec);
  if (!ec) acceptor.non_blocking(true, ec);
  if (ec) {
    return absl::UnavailableError(Concat("cannot listen on ", host, ":", port, ": ", ec.message()));
  }
  impl_->port = acceptor.local_endpoint().port();
  for (const auto& loop : impl_->loops) loop->Start();
  asio::post(impl_->loops[0]->io(), [this] { impl_->Accept(); });
  return absl::OkStatus();
}

int HttpServer::port() const { return impl_->port; }

void HttpServer::BeginDrain() { impl_->shared.draining = true; }

bool HttpServer::WaitUntilIdle(absl::Time deadline) {
  return impl_->shared.active.WaitUntilNone(deadline);
}

void HttpServer::Stop() {
  if (std::exchange(impl_->stopped, true)) return;
  if (impl_->port != 0) {
    // First of all nothing new comes: a loop that has stopped adopts no connection.
    std::promise<void> closed;
    asio::post(impl_->loops[0]->io(), [this, &closed] {
      error_code ec;
      impl_->acceptor->close(ec);
      impl_->pause->cancel();
      closed.set_value();
    });
    closed.get_future().wait();
  }
  for (const auto& loop : impl_->loops) loop->Stop();
  for (const auto& loop : impl_->loops) loop->Join();
  impl_->slow_pool.join();
}

}  // namespace weightless::router
