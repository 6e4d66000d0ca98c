// Strict JSON reading of untrusted text.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/status.h"

namespace weightless {

struct JsonLimits {
  size_t max_depth = 64;
};

// Parses one JSON text (RFC 8259; nothing but white space may follow). Errors are kInvalidArgument
// and say what is wrong and at which byte: bad syntax, invalid UTF-8, a duplicate key (named), too
// deep a nesting.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text, JsonLimits limits = {});

}  // namespace weightless
