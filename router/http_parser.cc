#include "router/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <vector>

#include "common/check.h"
#include "common/concat.h"
#include "router/api_error.h"

namespace weightless::router {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// "0 CR LF CR LF". Until a chunked body is complete at least so many bytes are still to be read,
// and the library asserts that it has them when it looks at the last chunk again.
constexpr size_t kLastChunkBytes = 5;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

HttpResponse RefusalOf(const error_code& error, const HttpOptions& options) {
  if (error == http::error::body_limit) {
    return RefusalResponse(413, "body_too_large",
                           Concat("the body is larger than ", options.max_body_bytes, " bytes"));
  }
  if (error == http::error::header_limit) {
    return RefusalResponse(
        431, "header_too_large",
        Concat("the header is larger than ", options.max_header_bytes, " bytes"));
  }
  return RefusalResponse(400, "bad_request", Concat("not an HTTP request: ", error.message()));
}

}  // namespace

struct HttpParser::Impl {
  http::request_parser<http::string_body> parser;
};

HttpParser::HttpParser(const HttpOptions& options)
    : options_(options), impl_(std::make_unique<Impl>()) {
  impl_->parser.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  impl_->parser.body_limit(static_cast<uint64_t>(options.max_body_bytes));
}

HttpParser::~HttpParser() = default;

size_t HttpParser::Read(std::string_view bytes) {
  auto& parser = impl_->parser;
  size_t num_read = 0;
  while ((state_ == State::kHeader || state_ == State::kBody) && num_read < bytes.size()) {
    if (state_ == State::kBody && parser.chunked() && bytes.size() - num_read < kLastChunkBytes)
      break;
    error_code error;
    num_read += parser.put(boost::asio::buffer(bytes.substr(num_read)), error);
    if (error == http::error::need_more) {
      // A line this long inside a body can only be a chunk header or a trailer.
      if (state_ == State::kBody &&
          bytes.size() - num_read > static_cast<size_t>(options_.max_header_bytes)) {
        Refuse(RefusalOf(http::error::header_limit, options_));
      }
      break;
    }
    if (error) {
      Refuse(RefusalOf(error, options_));
      break;
    }
    if (state_ == State::kHeader && parser.is_header_done()) {
      OnHeader();
      break;
    }
    if (parser.is_done()) state_ = State::kDone;
  }
  return num_read;
}

// What the grammar allows and we do not.
void HttpParser::OnHeader() {
  const auto& message = impl_->parser.get();
  version_ = static_cast<int>(message.version());
  std::vector<HeaderField> fields;
  for (const auto& field : message) {
    fields.push_back({View(field.name_string()), View(field.value())});
  }
  if (fields.size() > static_cast<size_t>(options_.max_header_fields)) {
    return Refuse(RefusalResponse(431, "header_too_large",
                                  Concat("the header has ", fields.size(), " fields, more than ",
                                         options_.max_header_fields)));
  }
  auto head =
      ReadRequestHead({View(message.method_string()), View(message.target()), version_, fields});
  if (!head.ok()) {
    HttpResponse refusal = ErrorResponse(head.status());
    if (head.status().code() == absl::StatusCode::kUnimplemented) refusal.status = 417;
    return Refuse(std::move(refusal));
  }
  head_ = *std::move(head);
  state_ = impl_->parser.is_done() ? State::kDone : State::kBody;
}

void HttpParser::Refuse(HttpResponse refusal) {
  refusal_ = std::move(refusal);
  state_ = State::kRefused;
}

bool HttpParser::keep_alive() const { return impl_->parser.keep_alive(); }

std::optional<uint64_t> HttpParser::content_length() const {
  const auto length = impl_->parser.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

std::string HttpParser::TakeBody() {
  CHECK(state_ == State::kDone);
  return std::move(impl_->parser.get().body());
}

}  // namespace weightless::router
