// Reading a file that an operator names.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weightless {

// The whole file. kInvalidArgument, without its name: not there, a folder, not readable, larger
// than 1 MiB. `what` it should hold is part of the message.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::string_view what);

}  // namespace weightless
