// TCP ports of this machine, tried by binding them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::tools {

// The port itself, or with port 0 one that is free now, on the address of `host` that the router
// would listen on. kInvalidArgument: it is no address of this machine; kAlreadyExists: somebody
// listens there.
absl::StatusOr<int> ProbePort(const std::string& host, int port);

// `count` different ports that are free now on the loopback interface.
absl::StatusOr<std::vector<int>> FreeLoopbackPorts(int count);

}  // namespace weightless::tools
