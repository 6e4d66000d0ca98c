// A worker in the same process and on the same thread, driven by the test: nothing happens between
// two calls of Deliver.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "router/worker_client.h"
#include "tests/support/fake_engine.h"

namespace weightless::testing {

class FakeWorkerClient : public router::WorkerClient {
 public:
  FakeWorkerClient(const FakeModel& model, const proto::Geometry& geometry)
      : engine_(model, geometry), description_(FakeDescription(model, geometry)) {}

  void Connect(const ConnectOptions& options) override;
  void Send(proto::StepPlan plan) override;
  void Disconnect() override;

  // Tells the listener one thing: that the worker is ready or lost, or the result of the oldest
  // plan. False when there is nothing to tell.
  bool Deliver();
  // Whether Deliver would do something.
  bool has_news() const;

  // The worker dies: the connection is lost, plans with it, until Revive.
  void Kill(absl::Status why = absl::UnavailableError("killed"));
  void Revive() { dead_ = false; }
  // It takes plans and gives no results.
  void SetHanging(bool hanging) { hanging_ = hanging; }
  // Changes the next result before it is told.
  void SetMangler(std::function<void(proto::StepResult&)> mangler) {
    mangler_ = std::move(mangler);
  }

  proto::Description& description() { return description_; }
  const FakeEngine& engine() const { return engine_; }
  const std::deque<proto::StepPlan>& plans() const { return plans_; }
  bool connected() const { return connected_; }

 private:
  FakeEngine engine_;
  proto::Description description_;
  ConnectOptions options_;
  std::optional<absl::Status> loss_;  // to be told
  bool hello_pending_ = false;
  bool connected_ = false;
  bool dead_ = false;
  bool hanging_ = false;
  std::function<void(proto::StepResult&)> mangler_;
  std::deque<proto::StepPlan> plans_;
};

}  // namespace weightless::testing
