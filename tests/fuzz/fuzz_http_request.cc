// The HTTP parser over arbitrary bytes: what it says does not depend on how the bytes are cut.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "router/http_parser.h"

using namespace weightless::router;

namespace {

const HttpOptions& Options() {
  static const HttpOptions options = [] {
    HttpOptions bounded;
    bounded.max_header_bytes = 2048;
    bounded.max_header_fields = 16;
    bounded.max_body_bytes = 4096;
    return bounded;
  }();
  return options;
}

// Reads at most `step` more bytes at a time; returns the number of bytes the request took.
size_t Feed(HttpParser& parser, std::string_view bytes, size_t step) {
  size_t begin = 0, end = 0;
  while (parser.state() == HttpParser::State::kHeader ||
         parser.state() == HttpParser::State::kBody) {
    const size_t num_read = parser.Read(bytes.substr(begin, end - begin));
    CHECK(num_read <= end - begin);
    begin += num_read;
    if (num_read > 0) continue;
    if (end == bytes.size()) break;
    end = std::min(end + step, bytes.size());
  }
  return begin;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HttpParser whole(Options()), dripped(Options());
  const size_t num_read = Feed(whole, bytes, bytes.size());
  const size_t num_dripped = Feed(dripped, bytes, 1);
  const bool is_over = whole.state() == HttpParser::State::kDone;
  CHECK(is_over == (dripped.state() == HttpParser::State::kDone));
  if (whole.state() == HttpParser::State::kRefused) {
    CHECK(whole.refusal().status >= 400 && whole.refusal().status < 500);
    CHECK(!whole.refusal().body.empty());
  }
  if (!is_over) return 0;
  CHECK(num_read == num_dripped);
  CHECK(whole.head().request.path == dripped.head().request.path);
  CHECK(!whole.head().request.path.empty() && whole.head().request.path.front() == '/');
  CHECK(!whole.head().request.request_id.empty());
  CHECK(whole.version() == 10 || whole.version() == 11);
  const std::string body = whole.TakeBody();
  CHECK(body == dripped.TakeBody());
  CHECK(body.size() <= static_cast<size_t>(Options().max_body_bytes));
  return 0;
}
