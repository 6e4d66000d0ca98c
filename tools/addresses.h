// Hosts as addresses that sockets take.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct addrinfo;

namespace weightless::tools {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses of `host`, at least one. kInvalidArgument: there is none.
absl::StatusOr<AddressList> FindAddresses(const std::string& host, int port);

// Which of them the router listens on: the first IPv4 address, else the first. (A numeric host has
// one address.)
const addrinfo& ListenAddress(const addrinfo& addresses);

// A TCP socket connected to the first of them that accepts, or -1. Connecting to each address, and
// every read and write later, takes `timeout_seconds` at most.
int Connect(const addrinfo& addresses, int timeout_seconds);

}  // namespace weightless::tools
