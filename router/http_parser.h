// One HTTP/1.x request out of bytes as they come, bounded and strict about framing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "router/http_head.h"
#include "router/http_message.h"
#include "router/http_options.h"

namespace weightless::router {

// Owned by one thread.
class HttpParser {
 public:
  enum class State {
    kHeader,   // the header is not complete
    kBody,     // the header is there, the body is not complete
    kDone,     // the request is there
    kRefused,  // nothing more is read; see refusal()
  };

  // `options` outlives this.
  explicit HttpParser(const HttpOptions& options);
  ~HttpParser();

  // Reads on and returns the number of bytes taken; less than all when the header has just been
  // completed, at the end of the request, and when a line is incomplete: call again with what is
  // left (and more).
  size_t Read(std::string_view bytes);

  State state() const { return state_; }
  // The answer, after which the connection must be closed: 400, 413, 417 or 431.
  const HttpResponse& refusal() const { return refusal_; }

  // From the end of the header on.
  RequestHead& head() { return head_; }
  int version() const { return version_; }  // 10 or 11
  bool keep_alive() const;                  // as the client wants it
  std::optional<uint64_t> content_length() const;

  // Once, when done.
  std::string TakeBody();

 private:
  struct Impl;

  void OnHeader();
  void Refuse(HttpResponse refusal);

  const HttpOptions& options_;
  std::unique_ptr<Impl> impl_;
  State state_ = State::kHeader;
  HttpResponse refusal_;
  RequestHead head_;
  int version_ = 11;
};

}  // namespace weightless::router
