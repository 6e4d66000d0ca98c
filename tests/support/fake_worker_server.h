// The fake engine behind a real gRPC server on a loopback port.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/support/fake_engine.h"

namespace weightless::testing {

struct FakeWorkerOptions {
  FakeModel model;
  proto::Geometry geometry = TinyGeometry();
  std::map<std::string, std::string> files = {};  // what ModelFiles sends
  std::string address = "127.0.0.1:0";
  absl::Duration step_time = absl::ZeroDuration();  // slept, and reported as compute_ns
  // Called before every step with its number.
  std::function<void(uint64_t step)> on_step = {};
};

// The tokenizer files of models/tiny-gemma3 or another model folder.
absl::StatusOr<std::map<std::string, std::string>> ReadModelFiles(const std::string& folder);

// Thread-safe. Serves until destroyed; streams that are open then break.
class FakeWorkerServer {
 public:
  static absl::StatusOr<std::unique_ptr<FakeWorkerServer>> Start(const FakeWorkerOptions& options);
  virtual ~FakeWorkerServer() = default;
  virtual int port() const = 0;
  // The first rule that a plan broke; OK if none did.
  virtual absl::Status violation() const = 0;
  // Blocks until the process is told to end.
  virtual void Wait() = 0;
};

}  // namespace weightless::testing
