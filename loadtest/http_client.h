// HTTP/1.1 requests to one server over kept-alive connections, plain or TLS, with the time of every
// read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "loadtest/http_response_parser.h"
#include "loadtest/steady_time.h"
#include "loadtest/url.h"

namespace boost::asio {
class io_context;
}

namespace weightless::loadtest {

struct TlsOptions {
  std::string ca_file;    // PEM; empty: the system's
  std::string cert_file;  // PEM of the client; empty: none
  std::string key_file;
  bool skips_verification = false;
};

struct ExchangeEnd {
  // kCancelled after CancelAll, kDeadlineExceeded after the time-out, kResourceExhausted when this
  // machine has no file or port for a new connection.
  absl::Status status;
  SteadyTime sent;             // right before the first byte of the request is written
  SteadyTime ended;            // after the read that completed the response, or of the failure
  double connect_seconds = 0;  // TCP and TLS; 0 on a kept connection
};

// What one response does as it arrives. Called on the thread that runs the io_context.
class ResponseHandler {
 public:
  virtual ~ResponseHandler() = default;
  virtual void OnHead(const ResponseHead& head) = 0;
  // `when` is read right after the read that brought the bytes. The bytes are gone after the call.
  // An error ends the request with it.
  virtual absl::Status OnBody(std::string_view bytes, SteadyTime when) = 0;
  // Exactly once, last. May delete the handler and start other requests.
  virtual void OnEnd(const ExchangeEnd& end) = 0;
};

// The bytes of a request. `headers` are whole lines, each with its CRLF.
std::string FormatRequest(const Url& url, std::string_view method, std::string_view path,
                          std::string_view headers, std::string_view body);

// Used by the thread that runs `io` only. Outlives its requests: run `io` dry before it goes.
class HttpClient {
 public:
  HttpClient(boost::asio::io_context& io, Url url, TlsOptions tls);
  ~HttpClient();

  // Resolves the name (blocks) and reads the TLS files. Once, before Start.
  absl::Status Open();

  // Sends `request` on an idle connection or a new one and reads its response into `handler`, which
  // must live until OnEnd. A kept connection that the server has closed before answering is
  // replaced once.
  void Start(std::string request, ResponseHandler& handler, absl::Duration timeout);

  // Ends every request in flight with kCancelled.
  void CancelAll();

  const Url& url() const;
  size_t num_running() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightless::loadtest
