// The JSON object a request body must be.
#pragma once

#include <boost/json/fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace weightless::router {

// kInvalidArgument with code `invalid_json` when it is no JSON, `invalid_type` when it is no
// object.
absl::StatusOr<boost::json::value> ParseBodyObject(std::string_view body);

}  // namespace weightless::router
