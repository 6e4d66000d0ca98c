#include "tests/support/fake_worker_client.h"

#include <utility>

#include "common/check.h"

namespace weightless::testing {

void FakeWorkerClient::Connect(const ConnectOptions& options) {
  Disconnect();
  options_ = options;
  if (dead_) {
    loss_ = absl::UnavailableError("connection refused");
  } else {
    hello_pending_ = true;
  }
}

void FakeWorkerClient::Send(proto::StepPlan plan) {
  if (connected_) plans_.push_back(std::move(plan));
}

void FakeWorkerClient::Disconnect() {
  connected_ = hello_pending_ = false;
  loss_.reset();
  plans_.clear();
  engine_.Reset();
}

void FakeWorkerClient::Kill(absl::Status why) {
  dead_ = true;
  if (!connected_ && !hello_pending_) return;
  Disconnect();
  loss_ = std::move(why);
}

bool FakeWorkerClient::has_news() const {
  return loss_.has_value() || hello_pending_ || (!plans_.empty() && !hanging_);
}

bool FakeWorkerClient::Deliver() {
  if (loss_.has_value()) {
    const absl::Status status = *std::exchange(loss_, std::nullopt);
    options_.listener->OnLost(options_.connection_id, status);
    return true;
  }
  if (std::exchange(hello_pending_, false)) {
    connected_ = true;
    options_.listener->OnReady(options_.connection_id, {.description = description_, .files = {}});
    return true;
  }
  if (plans_.empty() || hanging_) return false;
  const proto::StepPlan plan = std::move(plans_.front());
  plans_.pop_front();
  absl::StatusOr<proto::StepResult> result = engine_.Step(plan);
  if (!result.ok()) {
    Disconnect();
    options_.listener->OnLost(options_.connection_id, result.status());
    return true;
  }
  if (mangler_) std::exchange(mangler_, nullptr)(*result);
  options_.listener->OnResult(options_.connection_id, *std::move(result));
  return true;
}

}  // namespace weightless::testing
