// A client that speaks HTTP byte by byte, to a real server over a fake engine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/metrics.h"
#include "router/config.h"
#include "router/http_server.h"
#include "router/routes.h"
#include "router/tls.h"
#include "tests/router/fake_dispatcher.h"

namespace weightless::router {

// A server on a free port of the loopback, on time that the test moves; over TLS when the settings
// name a certificate.
struct TestServer {
  explicit TestServer(RouterConfig router_config = {}, ApiKeys keys = {});

  RouterConfig config;
  ManualClock clock;
  RouterMetrics metrics;
  FakeDispatcher dispatcher;
  Routes routes;
  std::unique_ptr<TlsContext> tls;
  HttpServer server;
};

struct ClientResponse {
  int status = 0;                              // 0: the connection ended before a response
  std::map<std::string, std::string> headers;  // by lower-case name
  std::string body;                            // without its chunks
};

// Fails the test when nothing comes for long. Not thread-safe.
class HttpClient {
 public:
  enum class Speaks {
    kAsServer,    // TLS when it does, with a handshake at once
    kInTheClear,  // whatever the server does
  };
  explicit HttpClient(int port, int receive_buffer_bytes = 0);  // in the clear
  explicit HttpClient(const TestServer& server, int receive_buffer_bytes = 0,
                      Speaks speaks = Speaks::kAsServer);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // False when the server has closed.
  bool Send(std::string_view bytes);
  ClientResponse Receive(bool is_head = false);
  // Everything until the server closes.
  std::string ReceiveAll();
  // Until `text` has come; all that has come by then and was not received before.
  std::string ReceiveUntil(std::string_view text);
  // True when the server has closed and nothing is left to read.
  bool IsClosed();
  // Lets the server's time pass until something, or the end, has come.
  void PassTimeUntilReadable(TestServer& server);
  // The name in the server's certificate, and what was negotiated: "TLSv1.3".
  std::string CertificateName() const;
  std::string Protocol() const;
  // Sends nothing more, and goes on reading. In the clear only.
  void EndInput();
  // Leaves at once, with a reset if `hard`.
  void Leave(bool hard);

  ClientResponse Get(std::string_view path);
  ClientResponse Post(std::string_view path, std::string_view json, std::string_view headers = "");

 private:
  bool IsReadable(int timeout_ms);
  bool Fill();
  std::string Take(size_t num_bytes);
  std::string ReadChunks();

  int socket_ = -1;
  ssl_ctx_st* context_ = nullptr;
  ssl_st* session_ = nullptr;  // null: in the clear
  std::string buffer_;
};

// A request as text, with the Content-Length that is right.
std::string PostText(std::string_view path, std::string_view json, std::string_view headers = "");

// The value of a string member in a flat piece of JSON: "code" of an error body.
std::string Member(std::string_view json, std::string_view name);

// A stream's events without "data: ", and without what differs from run to run (id).
std::vector<std::string> Events(std::string_view body);

}  // namespace weightless::router
