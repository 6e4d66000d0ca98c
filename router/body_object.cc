#include "router/body_object.h"

#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/json.h"
#include "router/api_error.h"
#include "router/field_reader.h"

namespace weightless::router {

absl::StatusOr<boost::json::value> ParseBodyObject(std::string_view body) {
  absl::StatusOr<boost::json::value> value = ParseJson(body);
  if (!value.ok()) {
    return ErrorWithCode(absl::StatusCode::kInvalidArgument, "invalid_json",
                         Concat("the body: ", value.status().message()));
  }
  if (!value->is_object()) {
    return ErrorWithCode(absl::StatusCode::kInvalidArgument, "invalid_type",
                         Concat("the body must be a JSON object, not ", KindName(*value)));
  }
  return value;
}

}  // namespace weightless::router
