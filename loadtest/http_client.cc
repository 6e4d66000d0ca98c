#include "loadtest/http_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/concat.h"
#include "common/status.h"
#include "loadtest/http_response_parser.h"

namespace weightless::loadtest {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

struct Connection {
  explicit Connection(asio::io_context& io) : socket(io) {}

  void Close() {
    error_code ignored;
    socket.close(ignored);
  }

  tcp::socket socket;
  std::optional<ssl::stream<tcp::socket&>> tls;
  std::array<char, 16 * 1024> buffer;
};

// A request in flight. Shared with its timer, whose handler may already be queued when it ends.
struct Exchange {
  explicit Exchange(asio::io_context& io) : timer(io) {}

  void Abort(absl::Status status) {
    if (why.ok()) why = std::move(status);
    if (connection) connection->Close();
  }

  asio::steady_timer timer;
  std::unique_ptr<Connection> connection;
  absl::Status why;  // why it was aborted
};

absl::Status NetworkError(std::string_view what, error_code ec) {
  return absl::UnavailableError(Concat(what, ": ", ec.message()));
}

absl::Status ConnectError(std::string_view what, error_code ec) {
  namespace errc = boost::system::errc;
  const bool is_own = ec == errc::too_many_files_open || ec == errc::address_not_available ||
                      ec == errc::too_many_files_open_in_system;
  absl::Status status = NetworkError(what, ec);
  return is_own ? absl::ResourceExhaustedError(status.message()) : status;
}

}  // namespace

class HttpClient::Impl {
 public:
  Impl(asio::io_context& io, Url url, TlsOptions tls)
      : io_(io), url_(std::move(url)), tls_(std::move(tls)) {}

  absl::Status Open() {
    RETURN_IF_ERROR(OpenTls());
    tcp::resolver resolver(io_);
    error_code ec;
    const auto results = resolver.resolve(url_.host, std::to_string(url_.port), ec);
    for (const auto& result : results) endpoints_.push_back(result.endpoint());
    if (ec || endpoints_.empty()) return NetworkError(Concat("cannot resolve ", url_.host), ec);
    return absl::OkStatus();
  }

  void Start(std::string request, ResponseHandler& handler, absl::Duration timeout) {
    auto exchange = std::make_shared<Exchange>(io_);
    running_.push_back(exchange);
    exchange->timer.expires_after(absl::ToChronoNanoseconds(timeout));
    exchange->timer.async_wait([exchange, timeout](error_code ec) {
      if (ec) return;
      exchange->Abort(absl::DeadlineExceededError(
          Concat("no complete response within ", absl::FormatDuration(timeout))));
    });
    asio::co_spawn(io_, Run(std::move(exchange), std::move(request), handler), asio::detached);
  }

  void CancelAll() {
    for (const auto& exchange : running_) exchange->Abort(absl::CancelledError("cancelled"));
  }

  const Url& url() const { return url_; }
  size_t num_running() const { return running_.size(); }

 private:
  absl::Status OpenTls() {
    if (!url_.is_tls) return absl::OkStatus();
    context_.emplace(ssl::context::tls_client);
    error_code ec;
    if (tls_.ca_file.empty()) {
      context_->set_default_verify_paths(ec);
    } else {
      context_->load_verify_file(tls_.ca_file, ec);
    }
    if (ec) return NetworkError(Concat("cannot read the CA certificates ", tls_.ca_file), ec);
    if (!tls_.cert_file.empty()) context_->use_certificate_chain_file(tls_.cert_file, ec);
    if (ec) return NetworkError(Concat("cannot read the certificate ", tls_.cert_file), ec);
    if (!tls_.key_file.empty())
      context_->use_private_key_file(tls_.key_file, ssl::context::pem, ec);
    if (ec) return NetworkError(Concat("cannot read the key ", tls_.key_file), ec);
    context_->set_verify_mode(tls_.skips_verification ? ssl::verify_none : ssl::verify_peer, ec);
    return absl::OkStatus();
  }

  // Tries each address until one answers or the socket is closed. (asio::async_connect over all of
  // them does not tell why a socket could not be opened.)
  asio::awaitable<error_code> ConnectSocket(tcp::socket& socket) {
    error_code ec;
    for (const tcp::endpoint& endpoint : endpoints_) {
      error_code ignored;
      socket.close(ignored);
      socket.open(endpoint.protocol(), ec);
      if (ec) continue;
      std::tie(ec) = co_await socket.async_connect(endpoint, kToken);
      if (!ec || !socket.is_open()) break;
    }
    co_return ec;
  }

  asio::awaitable<absl::Status> Connect(Connection& connection) {
    error_code ec = co_await ConnectSocket(connection.socket);
    if (ec) co_return ConnectError(Concat("cannot connect to ", url_.Authority()), ec);
    connection.socket.set_option(tcp::no_delay(true), ec);
    if (!context_) co_return absl::OkStatus();
    connection.tls.emplace(connection.socket, *context_);
    if (!tls_.skips_verification) {
      connection.tls->set_verify_callback(ssl::host_name_verification(url_.host), ec);
    }
    asio::ip::make_address(url_.host, ec);
    if (ec) {  // a name, not an address
      SSL_set_tlsext_host_name(connection.tls->native_handle(), url_.host.c_str());
    }
    auto [tls_error] = co_await connection.tls->async_handshake(ssl::stream_base::client, kToken);
    if (tls_error) co_return NetworkError(Concat("TLS with ", url_.Authority()), tls_error);
    co_return absl::OkStatus();
  }

  template <typename Stream>
  asio::awaitable<absl::Status> Transfer(Stream& stream, Connection& connection,
                                         const std::string& request, HttpResponseParser& parser,
                                         ResponseHandler& handler, ExchangeEnd& end) {
    end.sent = SteadyClock::now();
    auto [write_error, written] = co_await asio::async_write(stream, asio::buffer(request), kToken);
    if (write_error) co_return NetworkError("cannot send the request", write_error);
    while (!parser.is_done()) {
      auto [ec, size] = co_await stream.async_read_some(asio::buffer(connection.buffer), kToken);
      const SteadyTime now = SteadyClock::now();
      if (ec == asio::error::eof || ec == ssl::error::stream_truncated) {
        co_return parser.FeedEnd();
      }
      if (ec) co_return NetworkError("cannot read the response", ec);
      bool told_head = parser.has_head();
      absl::Status handled;
      const auto on_body = [&](std::string_view bytes) {
        if (!std::exchange(told_head, true)) handler.OnHead(parser.head());
        if (handled.ok()) handled = handler.OnBody(bytes, now);
      };
      const absl::Status fed = parser.Feed({connection.buffer.data(), size}, on_body);
      if (!told_head && parser.has_head()) handler.OnHead(parser.head());
      if (!handled.ok()) co_return handled;
      if (!fed.ok()) co_return fed;
    }
    co_return absl::OkStatus();
  }

  asio::awaitable<absl::Status> TransferOn(Connection& connection, const std::string& request,
                                           HttpResponseParser& parser, ResponseHandler& handler,
                                           ExchangeEnd& end) {
    if (connection.tls) {
      co_return co_await Transfer(*connection.tls, connection, request, parser, handler, end);
    }
    co_return co_await Transfer(connection.socket, connection, request, parser, handler, end);
  }

  asio::awaitable<void> Run(std::shared_ptr<Exchange> exchange, std::string request,
                            ResponseHandler& handler) {
    ExchangeEnd end;
    end.sent = SteadyClock::now();
    bool may_use_kept = true;
    while (exchange->why.ok()) {
      const bool is_kept = may_use_kept && !idle_.empty();
      if (is_kept) {
        exchange->connection = std::move(idle_.back());
        idle_.pop_back();
        end.status = absl::OkStatus();
      } else {
        const SteadyTime started = SteadyClock::now();
        exchange->connection = std::make_unique<Connection>(io_);
        end.status = co_await Connect(*exchange->connection);
        end.connect_seconds = Seconds(SteadyClock::now() - started);
      }
      HttpResponseParser parser;
      if (end.status.ok()) {
        end.status = co_await TransferOn(*exchange->connection, request, parser, handler, end);
      }
      if (end.status.ok() && parser.keeps_alive()) idle_.push_back(std::move(exchange->connection));
      if (end.status.ok() || !is_kept || parser.has_head()) break;
      may_use_kept = false;  // the server closed it while it was idle
    }
    end.ended = SteadyClock::now();
    if (!exchange->why.ok()) end.status = exchange->why;
    exchange->timer.cancel();
    exchange->connection.reset();
    running_.erase(std::find(running_.begin(), running_.end(), exchange));
    handler.OnEnd(end);
  }

  asio::io_context& io_;
  const Url url_;
  const TlsOptions tls_;
  std::optional<ssl::context> context_;
  std::vector<tcp::endpoint> endpoints_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::vector<std::shared_ptr<Exchange>> running_;
};

std::string FormatRequest(const Url& url, std::string_view method, std::string_view path,
                          std::string_view headers, std::string_view body) {
  return Concat(method, " ", url.path, path, " HTTP/1.1\r\nHost: ", url.Authority(),
                "\r\nUser-Agent: weightless-loadtest\r\nAccept: */*\r\n", headers,
                "Content-Length: ", body.size(), "\r\n\r\n", body);
}

HttpClient::HttpClient(asio::io_context& io, Url url, TlsOptions tls)
    : impl_(std::make_unique<Impl>(io, std::move(url), std::move(tls))) {}
HttpClient::~HttpClient() = default;
absl::Status HttpClient::Open() { return impl_->Open(); }
void HttpClient::Start(std::string request, ResponseHandler& handler, absl::Duration timeout) {
  impl_->Start(std::move(request), handler, timeout);
}
void HttpClient::CancelAll() { impl_->CancelAll(); }
const Url& HttpClient::url() const { return impl_->url(); }
size_t HttpClient::num_running() const { return impl_->num_running(); }

}  // namespace weightless::loadtest
