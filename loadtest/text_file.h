// Text files in and out, whole.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace weightless::loadtest {

// kNotFound or kInvalidArgument (larger than 2 GiB), with the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// kUnavailable with the path when it cannot be written to its end.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Calls `on_line` for every line that is not blank; the first error comes back with its line
// number.
absl::Status ForEachLine(std::string_view text,
                         absl::FunctionRef<absl::Status(std::string_view)> on_line);

}  // namespace weightless::loadtest
