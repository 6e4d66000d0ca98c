// The whole router in one process: engine loop, routes, listeners.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "router/config.h"

namespace weightless::router {

// Serves until `wait_for_stop` returns, then drains and ends. Errors, before anything was served:
// kInvalidArgument of the API keys, kUnavailable naming an address that cannot be listened on.
absl::Status RunRouter(const RouterConfig& config, const std::function<void()>& wait_for_stop);

}  // namespace weightless::router
