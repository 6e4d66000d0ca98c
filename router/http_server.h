// The HTTP/1.1 server: listeners, threads and connections.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "router/http_message.h"
#include "router/http_options.h"

namespace weightless::router {

class TlsContext;

// Thread-safe. What it is given outlives it.
class HttpServer {
 public:
  // `tls` null: in the clear.
  HttpServer(const HttpOptions& options, HttpHandler& handler, const Clock& clock,
             RouterMetrics& metrics, const TlsContext* tls = nullptr);
  ~HttpServer();  // stops

  // Binds, and serves from now on. Once only. kUnavailable names host:port and the reason.
  absl::Status Listen(const std::string& host, int port);
  // The port that was bound.
  int port() const;

  // Connections close after the answer they are giving.
  void BeginDrain();
  // Waits until no request is under way; false when some are at the deadline.
  bool WaitUntilIdle(absl::Time deadline);
  // Ends every connection and joins the threads.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightless::router
