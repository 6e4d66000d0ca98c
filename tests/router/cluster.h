// An EngineCore with fake workers, driven by hand: one delivery at a time, on a clock that only the
// test moves.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/clock.h"
#include "router/engine_core.h"
#include "tests/support/fake_worker_client.h"

namespace weightless::testing {

// One submitted sequence and what has come out of it.
struct Client {
  router::SequenceRequest request;
  std::shared_ptr<router::TokenStream> stream;
  std::vector<int32_t> output;
  std::vector<proto::Logprobs> logprobs, prompt_logprobs;
  int num_cached_tokens = 0;
  std::optional<router::EndReason> end;
  absl::Status status;

  // Takes what has arrived.
  void Read();
};

struct ClusterOptions {
  int num_workers = 1;
  FakeModel model = {};
  proto::Geometry geometry = TinyGeometry();
  std::map<int, proto::Geometry> other_geometries = {};  // by worker
  router::EngineConfig config = {};
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  // Discovery finds one more worker, under that address.
  void Discover(const std::string& address, const proto::Geometry& geometry);
  // Submits a request with the defaults filled in; the pointer lives as long as the cluster.
  Client* Submit(router::SequenceRequest request);
  void Close(Client& client);
  void Pump();
  // Lets one worker tell one thing. False when it has nothing to tell.
  bool Deliver(int worker);
  // Delivers, in turns, until nobody has anything to tell.
  void RunUntilIdle();
  void Advance(absl::Duration by);

  router::EngineCore& core() { return *core_; }
  FakeWorkerClient& worker(int i) { return *workers_[static_cast<size_t>(i)]; }
  int num_workers() const { return static_cast<int>(workers_.size()); }
  RouterMetrics& metrics() { return metrics_; }
  router::Admission& admission() { return admission_; }
  std::vector<std::unique_ptr<Client>>& clients() { return clients_; }
  // What the client must receive in the end.
  std::vector<int32_t> Expected(const Client& client) const;
  ReplicaMetrics Metrics(int worker);

 private:
  class Listener;

  const ClusterOptions options_;
  ManualClock clock_;
  router::PrefixHasher hasher_{1, 2};
  RouterMetrics metrics_;
  router::Admission admission_;
  router::ServedModel served_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<FakeWorkerClient*> workers_;  // owned by the core
  std::unique_ptr<router::EngineCore> core_;
  std::vector<std::unique_ptr<Client>> clients_;
};

// A request with a prompt of its own (or one that `seed` repeats) and room for `max_tokens`.
router::SequenceRequest MakeRequest(int prompt_len, int max_tokens, int64_t seed = 1);

}  // namespace weightless::testing
