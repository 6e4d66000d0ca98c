#include "worker/metrics_listener.h"

#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "common/concat.h"

namespace weightless::worker {

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Start(
    const std::string& address, const WorkerMetrics& metrics) {
  try {
    // A connection holds a thread: silent ones must not keep the scraper out for long.
    auto exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", "16",
                                 "request_timeout_ms", "2000", "keep_alive_timeout_ms", "2000"});
    exposer->RegisterCollectable(metrics.collectable());
    const std::string host = address.substr(0, address.rfind(':'));
    std::string bound = Concat(host, ":", exposer->GetListeningPorts().at(0));
    return std::unique_ptr<MetricsListener>(
        new MetricsListener(std::move(exposer), std::move(bound)));
  } catch (const std::exception&) {  // the library's text does not say more
    return absl::InvalidArgumentError(Concat("cannot listen for metrics on ", address,
                                             ": in use, or no address of this machine"));
  }
}

MetricsListener::MetricsListener(std::unique_ptr<prometheus::Exposer> exposer, std::string address)
    : exposer_(std::move(exposer)), address_(std::move(address)) {}

MetricsListener::~MetricsListener() = default;

}  // namespace weightless::worker
