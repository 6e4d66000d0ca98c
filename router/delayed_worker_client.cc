#include "router/delayed_worker_client.h"

#include <functional>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "common/bounded_queue.h"
#include "common/check.h"

namespace weightless::router {

namespace {

// Plans and events under way at once; far above what plan_ahead allows.
constexpr size_t kCapacity = 65536;

class DelayedWorkerClient : public WorkerClient, private WorkerListener {
 public:
  DelayedWorkerClient(std::unique_ptr<WorkerClient> worker, absl::Duration delay)
      : delay_(delay), queue_(kCapacity), worker_(std::move(worker)), thread_([this] { Run(); }) {}

  ~DelayedWorkerClient() override {
    Disconnect();
    queue_.Close();
    thread_.join();
    worker_.reset();  // what it still tells finds a closed queue
  }

  void Connect(const ConnectOptions& options) override {
    Later([this, inner = options]() mutable {
      listener_ = inner.listener;
      inner.listener = this;
      worker_->Connect(inner);
    });
  }
  void Send(proto::StepPlan plan) override {
    Later([this, plan = std::move(plan)]() mutable { worker_->Send(std::move(plan)); });
  }
  void Disconnect() override {
    Later([this] { worker_->Disconnect(); });
  }

 private:
  struct Action {
    absl::Time due;
    std::function<void()> act;
  };

  void OnReady(uint64_t connection_id, WorkerHello hello) override {
    auto shared = std::make_shared<WorkerHello>(std::move(hello));  // std::function wants copies
    Later([this, connection_id, shared] { listener_->OnReady(connection_id, std::move(*shared)); });
  }
  void OnResult(uint64_t connection_id, proto::StepResult result) override {
    Later([this, connection_id, result = std::move(result)]() mutable {
      listener_->OnResult(connection_id, std::move(result));
    });
  }
  void OnLost(uint64_t connection_id, absl::Status status) override {
    Later([this, connection_id, status] { listener_->OnLost(connection_id, status); });
  }

  void Later(std::function<void()> act) {
    if (!queue_.Push({.due = absl::Now() + delay_, .act = std::move(act)})) {
      CHECK(queue_.closed());
    }
  }

  void Run() {
    // One delay for all: what was queued first is due first.
    while (std::optional<Action> action = queue_.Pop(absl::InfiniteFuture())) {
      absl::SleepFor(action->due - absl::Now());
      action->act();
    }
  }

  const absl::Duration delay_;
  WorkerListener* listener_ = nullptr;  // of thread_, like the worker
  BoundedQueue<Action> queue_;
  std::unique_ptr<WorkerClient> worker_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<WorkerClient> MakeDelayedWorkerClient(std::unique_ptr<WorkerClient> worker,
                                                      absl::Duration delay) {
  return std::make_unique<DelayedWorkerClient>(std::move(worker), delay);
}

}  // namespace weightless::router
