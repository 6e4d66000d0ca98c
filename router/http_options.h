// The bounds of the HTTP server.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace weightless::router {

struct HttpOptions {
  int num_threads = 2;
  int max_connections = 8192;
  int64_t max_body_bytes = int64_t{8} << 20;  // 413 beyond
  int max_header_bytes = 64 << 10;            // 431 beyond, or beyond max_header_fields
  int max_header_fields = 128;
  absl::Duration header_timeout = absl::Seconds(10);  // first to last byte of a header; 408
  absl::Duration body_timeout = absl::Seconds(60);    // end of header to end of body; 408
  absl::Duration idle_timeout = absl::Seconds(75);    // between requests
  // How long the client may leave a write waiting; then it is cut off.
  absl::Duration write_timeout = absl::Seconds(30);
  absl::Duration keep_alive_interval =
      absl::Seconds(10);                          // of silence before a comment in a stream
  absl::Duration tick = absl::Milliseconds(250);  // how exact time-outs are
  // Kernel send buffer of a connection, 0 = the system's choice.
  int send_buffer_bytes = 0;
  int64_t max_total_body_bytes = int64_t{1} << 30;  // of all bodies in memory; 503 beyond
};

}  // namespace weightless::router
