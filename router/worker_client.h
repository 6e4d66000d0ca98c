// The router's end of one worker. An interface, because there are several: over gRPC, delayed for
// measurement, and in process for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace weightless::router {

struct WorkerHello {
  proto::Description description;
  std::map<std::string, std::string> files;  // of ModelFiles, when they were asked for
};

// Told what happens on a connection, from any thread. Never called by a client inside Connect, Send
// or Disconnect.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  // The worker is ours: plans can be sent.
  virtual void OnReady(uint64_t connection_id, WorkerHello hello) = 0;
  // In the order of the plans, never more results than plans.
  virtual void OnResult(uint64_t connection_id, proto::StepResult result) = 0;
  // The connection is over, or could not be made; nothing follows.
  virtual void OnLost(uint64_t connection_id, absl::Status status) = 0;
};

// One caller at a time; no call blocks. The destructor returns when the listener will not be called
// any more.
class WorkerClient {
 public:
  struct ConnectOptions {
    uint64_t connection_id = 0;  // repeated in every event
    bool want_files = false;
    WorkerListener* listener = nullptr;  // outlives the client
  };

  virtual ~WorkerClient() = default;

  // Describes the worker, reads its files when wanted, and takes it over. Ends a connection that is
  // still there.
  virtual void Connect(const ConnectOptions& options) = 0;
  // Queues a plan. Dropped when the connection is not ready.
  virtual void Send(proto::StepPlan plan) = 0;
  // Ends the connection. Events that were on their way may still arrive.
  virtual void Disconnect() = 0;
};

using WorkerClientFactory =
    std::function<std::unique_ptr<WorkerClient>(const std::string& address)>;

}  // namespace weightless::router
