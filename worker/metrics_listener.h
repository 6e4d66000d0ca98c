// Answers GET /metrics of a worker.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/worker_metrics.h"

namespace prometheus {
class Exposer;
}  // namespace prometheus

namespace weightless::worker {

// Plain HTTP without authentication: for a network that only Prometheus reaches. Thread-safe.
class MetricsListener {
 public:
  // Listens on `address`, host:port (0: any free port). kInvalidArgument when it cannot. `metrics`
  // outlives the listener.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Start(const std::string& address,
                                                                const WorkerMetrics& metrics);
  ~MetricsListener();

  // host:port with the port it got.
  const std::string& address() const { return address_; }

 private:
  MetricsListener(std::unique_ptr<prometheus::Exposer> exposer, std::string address);

  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string address_;
};

}  // namespace weightless::worker
