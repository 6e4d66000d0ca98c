// Heads of requests and responses: what is checked and written beyond the grammar of HTTP.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/http_message.h"

namespace weightless::router {

struct HeaderField {
  std::string_view name, value;
};

// A request head as the HTTP library parsed it.
struct RawHead {
  std::string_view method, target;
  int version = 11;  // 10 or 11
  std::span<const HeaderField> fields;
};

struct RequestHead {
  HttpRequest request;
  bool is_head = false;           // the method was HEAD; request.method is GET
  bool expects_continue = false;  // the client waits for 100 before it sends the body
};

// kInvalidArgument `bad_request`: framing that could be read in two ways (lengths twice, a length
// with a transfer coding, a coding other than chunked, any coding in HTTP/1.0), no or several Host
// in HTTP/1.1, a target that is no path. kUnimplemented: an expectation other than 100-continue.
// Takes X-Request-Id when it is 1 to 128 characters of [A-Za-z0-9._:/+=@-], else makes one.
absl::StatusOr<RequestHead> ReadRequestHead(const RawHead& raw);

struct ResponseFraming {
  int version = 11;
  bool keep_alive = true;
  // The body's size; absent for a stream: chunked, or until the connection closes in HTTP/1.0.
  std::optional<size_t> content_length;
};

// The head up to and including its blank line.
std::string ResponseHeadText(const HttpResponse& response, const ResponseFraming& framing,
                             std::string_view request_id, absl::Time now);

// The head of a stream of server-sent events, which no proxy may hold back.
HttpResponse EventStreamResponse();

// What stands before a chunk's bytes: their number in hex and the end of the line.
std::string ChunkSizeLine(size_t size);

}  // namespace weightless::router
