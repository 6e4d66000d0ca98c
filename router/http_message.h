// A request and its answer as the routes see them: no sockets, no HTTP library.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace weightless::router {

struct HttpRequest {
  std::string method;                                         // "GET"; HEAD arrives as GET
  std::string path;                                           // percent-decoded, without the query
  std::string content_type, content_encoding, authorization;  // empty when absent
  std::string request_id;                                     // the client's, or one made for it
  std::string key_id;  // filled in by CheckHead: whose key it came with
  std::string body;
  absl::Time received_at;  // when the last byte had been read
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// An answer that takes time. Destroying it before it is done means that the client left. Used on
// one thread at a time.
class Reply {
 public:
  // What one Advance brought.
  struct Progress {
    // The body goes out in pieces from now on: `out` has the next, perhaps empty.
    bool streaming = false;
    bool done = false;
    // With done, unless it streamed: the whole answer.
    std::optional<HttpResponse> whole;
  };

  virtual ~Reply() = default;

  // Moves on with what has arrived, appending to `out` what is to be sent. Never blocks.
  virtual Progress Advance(std::string& out) = 0;

  // Nothing has come for long. An answer that streams appends a sign of life, streams from now on
  // and returns true.
  virtual bool KeepAlive(std::string& out) = 0;

  // What the last Advance appended, or the whole answer, has been handed to the operating system.
  virtual void OnWritten(absl::Time now) = 0;
};

using Answer = std::variant<HttpResponse, std::unique_ptr<Reply>>;

// Thread-safe. Implemented by Routes and by MetricsRoutes.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Called when the header is read and the body is not: the refusal, if there is a reason for one.
  virtual std::optional<HttpResponse> CheckHead(HttpRequest& head) = 0;

  // `wake` may be called from any thread when Advance has something to do. It stays valid, and does
  // no harm, after the Reply is gone: a call that another thread is about to make cannot be held
  // back.
  virtual Answer Handle(HttpRequest request, std::function<void()> wake) = 0;
};

}  // namespace weightless::router
