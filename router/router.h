// The whole router in one process: engine loop, routes, listeners.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "router/config.h"

namespace weightless::router {

// What whoever runs the router wants of it.
enum class Wish {
  kReload,  // certificate, key and API keys are read again; with an error the old ones stay
  kStop,    // it drains and ends
};

// Serves, doing what `next_wish` returns, until that is kStop. Errors, before anything was served:
// kInvalidArgument of the API keys or the TLS files, kUnavailable naming an address that cannot be
// listened on.
absl::Status RunRouter(const RouterConfig& config, const std::function<Wish()>& next_wish);

}  // namespace weightless::router
