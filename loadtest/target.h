// One server of a session: what is sent to it, and what it says about itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/config.h"
#include "loadtest/request_body.h"
#include "loadtest/server_api.h"
#include "loadtest/server_metrics.h"

namespace weightless::loadtest {

// Blocks in every call that asks the server.
class Target {
 public:
  // Resolves the names of the server and of its metrics, and asks for its first model unless the
  // config names one. Errors name the URL.
  static absl::StatusOr<Target> Open(const Url& url, const Config& config);

  const Url& url() const { return url_; }
  const std::string& model() const { return model_; }
  ServerApi& api() { return *api_; }

  // The bytes of a generation request.
  std::string Request(const Prompt& prompt) const;

  // Its counters since its start; nothing when it has none that we know.
  std::optional<ServerCounts> Scrape();
  // Its counters since `before`. A server may count a request a moment after its last byte: waits
  // up to a second for `completed` of them.
  std::optional<ServerCounts> ScrapeSince(const ServerCounts& before, uint64_t completed);
  // Why the last Scrape gave nothing.
  const std::string& no_metrics_reason() const { return no_metrics_reason_; }

 private:
  Target(Url url, std::string model, RequestWriter writer)
      : url_(std::move(url)), model_(std::move(model)), writer_(std::move(writer)) {}

  absl::Status OpenMetrics(const Config& config);

  Url url_;
  std::string model_;
  RequestWriter writer_;
  std::string headers_;
  std::unique_ptr<ServerApi> api_;
  std::unique_ptr<ServerApi> metrics_;  // empty: none
  std::string metrics_path_ = "/metrics";
  std::string no_metrics_reason_;
};

}  // namespace weightless::loadtest
