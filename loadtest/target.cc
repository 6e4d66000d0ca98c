#include "loadtest/target.h"

#include <thread>
#include <utility>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::loadtest {

absl::StatusOr<Target> Target::Open(const Url& url, const Config& config) {
  const std::string headers = CommonHeaders(config);
  auto api = std::make_unique<ServerApi>(url, config.tls, headers);
  RETURN_IF_ERROR(api->Open());
  std::string model = config.model;
  if (model.empty()) {
    auto first = api->FirstModel();
    if (!first.ok()) {
      return absl::UnavailableError(
          Concat(url.ToString(), ": ", std::string(first.status().message())));
    }
    model = *std::move(first);
  }
  ASSIGN_OR_RETURN(RequestWriter writer, RequestWriter::Make(config, model));
  Target target(url, std::move(model), std::move(writer));
  target.headers_ = headers;
  target.api_ = std::move(api);
  RETURN_IF_ERROR(target.OpenMetrics(config));
  return target;
}

absl::Status Target::OpenMetrics(const Config& config) {
  if (config.metrics_url == "off") {
    no_metrics_reason_ = "--metrics-url off";
    return absl::OkStatus();
  }
  Url url = url_;
  if (!config.metrics_url.empty()) {
    ASSIGN_OR_RETURN(url, ParseUrl(config.metrics_url));
    if (!url.path.empty()) metrics_path_ = "";
  }
  metrics_ = std::make_unique<ServerApi>(url, config.tls, headers_);
  return metrics_->Open();
}

std::string Target::Request(const Prompt& prompt) const {
  return FormatRequest(url_, "POST", writer_.path(), headers_, writer_.Body(prompt));
}

std::optional<ServerCounts> Target::Scrape() {
  if (!metrics_) return std::nullopt;
  const auto text = metrics_->Get(metrics_path_);
  if (!text.ok()) {
    no_metrics_reason_ = Concat("no metrics: ", std::string(text.status().message()));
    return std::nullopt;
  }
  const auto samples = ParseExposition(*text);
  if (!samples.ok()) {
    no_metrics_reason_ = std::string(samples.status().message());
    return std::nullopt;
  }
  ServerCounts counts = CountsOf(*samples);
  if (!counts.family.empty()) return counts;
  no_metrics_reason_ = "/metrics has none of the names known here";
  return std::nullopt;
}

std::optional<ServerCounts> Target::ScrapeSince(const ServerCounts& before, uint64_t completed) {
  constexpr int kAttempts = 10;
  std::optional<ServerCounts> counts;
  for (int i = 0; i < kAttempts; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    counts = Scrape();
    if (!counts) return std::nullopt;
    counts = Difference(*counts, before);
    if (!counts->requests || *counts->requests >= static_cast<double>(completed)) break;
  }
  return counts;
}

}  // namespace weightless::loadtest
