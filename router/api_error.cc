#include "router/api_error.h"

#include <algorithm>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/json_writer.h"

namespace weightless::router {
namespace {

constexpr char kCodePayload[] = "weightless/code";
constexpr char kParamPayload[] = "weightless/param";
constexpr char kRetryPayload[] = "weightless/retry-after";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Payload(const absl::Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  return payload ? std::string(*payload) : std::string();
}

// What a status code means when the status carries no slug.
ApiError DefaultsOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {400, "invalid_request_error", "invalid_value", {}, {}};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_request_error", "invalid_api_key", {}, {}};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "not_found", {}, {}};
    case absl::StatusCode::kUnimplemented:
      return {400, "invalid_request_error", "unsupported_field", {}, {}};
    case absl::StatusCode::kResourceExhausted:
      return {503, "server_error", "overloaded", {}, {}};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", "overloaded", {}, {}};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "server_error", "deadline_exceeded", {}, {}};
    default:
      return {500, "server_error", "internal_error", {}, {}};
  }
}

}  // namespace

absl::Status ErrorWithCode(absl::StatusCode status_code, std::string_view code,
                           std::string_view message) {
  absl::Status status(status_code, View(message));
  status.SetPayload(kCodePayload, absl::Cord(View(code)));
  return status;
}

absl::Status FieldError(std::string_view param, std::string_view code, std::string_view message) {
  return WithParam(ErrorWithCode(absl::StatusCode::kInvalidArgument, code, message), param);
}

absl::Status WithParam(absl::Status status, std::string_view param) {
  if (!status.ok() && !status.GetPayload(kParamPayload)) {
    status.SetPayload(kParamPayload, absl::Cord(View(param)));
  }
  return status;
}

int64_t RetrySeconds(absl::Duration wait) {
  return std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1))));
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration wait) {
  status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(RetrySeconds(wait))));
  return status;
}

ApiError ToApiError(const absl::Status& status) {
  CHECK(!status.ok());
  ApiError error = DefaultsOf(status.code());
  if (std::string code = Payload(status, kCodePayload); !code.empty()) error.code = std::move(code);
  if (error.code == "rate_limit_exceeded") {
    error.http_status = 429;
    error.type = "rate_limit_error";
  }
  error.param = Payload(status, kParamPayload);
  error.message = error.http_status == 500 ? "internal error; the server's log has the details"
                                           : std::string(status.message());
  return error;
}

std::string ErrorBody(const ApiError& error) {
  std::string body = "{\"error\":{\"message\":";
  AppendJsonString(body, error.message);
  body += ",\"type\":";
  AppendJsonString(body, error.type);
  body += ",\"param\":";
  if (error.param.empty()) {
    body += "null";
  } else {
    AppendJsonString(body, error.param);
  }
  body += ",\"code\":";
  AppendJsonString(body, error.code);
  body += "}}";
  return body;
}

HttpResponse RefusalResponse(int http_status, std::string_view code, std::string_view message) {
  const char* type = http_status >= 500 ? "server_error" : "invalid_request_error";
  HttpResponse response;
  response.status = http_status;
  response.body = ErrorBody({http_status, type, std::string(code), "", std::string(message)});
  return response;
}

HttpResponse ErrorResponse(const absl::Status& status) {
  const ApiError error = ToApiError(status);
  HttpResponse response;
  response.status = error.http_status;
  response.body = ErrorBody(error);
  if (error.http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.http_status == 429 || error.http_status == 503) {
    const std::string seconds = Payload(status, kRetryPayload);
    response.headers.emplace_back("Retry-After", seconds.empty() ? "1" : seconds);
  }
  return response;
}

}  // namespace weightless::router
