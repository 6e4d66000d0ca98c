// Errors as the HTTP side answers them: an absl::Status that also knows its `code` slug and the
// field it is about, and the body OpenAI's clients read.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/http_message.h"

namespace weightless::router {

struct ApiError {
  int http_status = 500;
  std::string type;     // "invalid_request_error", "rate_limit_error", "server_error"
  std::string code;     // "out_of_range", "overloaded", ...
  std::string param;    // the field, "messages[0].role"; empty when it is about none
  std::string message;  // names the thing, the value and the limit
};

// kInvalidArgument about one field of the request body.
absl::Status FieldError(std::string_view param, std::string_view code, std::string_view message);

// Any status with a code slug other than the usual one of its status code.
absl::Status ErrorWithCode(absl::StatusCode status_code, std::string_view code,
                           std::string_view message);

// The same status, for which a client learns when to try again.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// `wait` as Retry-After says it: whole seconds, at least 1.
int64_t RetrySeconds(absl::Duration wait);

// The same status, about `param` if it names no field yet.
absl::Status WithParam(absl::Status status, std::string_view param);

// kResourceExhausted is 503 `overloaded` unless its code is `rate_limit_exceeded` (429). The
// message of an internal error is not shown to clients. CHECK-fails on OK.
ApiError ToApiError(const absl::Status& status);

// {"error":{"message":..,"type":..,"param":..,"code":..}}
std::string ErrorBody(const ApiError& error);

// The answer to a request that failed with `status`: with Retry-After when trying again may help (1
// s unless the status says more), with WWW-Authenticate when a key is needed.
HttpResponse ErrorResponse(const absl::Status& status);

// The answer with an HTTP status that no absl code stands for.
HttpResponse RefusalResponse(int http_status, std::string_view code, std::string_view message);

}  // namespace weightless::router
