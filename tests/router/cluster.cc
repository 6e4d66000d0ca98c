#include "tests/router/cluster.h"

#include <utility>

#include "common/check.h"

namespace weightless::testing {

using router::Admission;
using router::EngineCore;
using router::SequenceRequest;
using router::TokenBatch;
using router::TokenEvent;
using router::TokenStream;
using router::WorkerEndpoint;
using router::WorkerListener;
using router::WorkerPool;

class Cluster::Listener : public WorkerListener {
 public:
  Listener(Cluster& cluster, int worker) : cluster_(cluster), worker_(worker) {}
  void OnReady(uint64_t connection_id, router::WorkerHello hello) override {
    cluster_.core_->OnWorkerReady(worker_, connection_id, hello.description, cluster_.served_,
                                  cluster_.clock_.Now());
  }
  void OnResult(uint64_t connection_id, proto::StepResult result) override {
    cluster_.core_->OnResult(worker_, connection_id, result, cluster_.clock_.Now());
  }
  void OnLost(uint64_t connection_id, absl::Status status) override {
    cluster_.core_->OnWorkerLost(worker_, connection_id, status, cluster_.clock_.Now());
  }

 private:
  Cluster& cluster_;
  const int worker_;
};

void Client::Read() {
  TokenBatch batch = stream->Take();
  for (const TokenEvent& event : batch.tokens) {
    output.push_back(event.token);
    if (event.logprobs.has_value()) logprobs.push_back(*event.logprobs);
  }
  for (auto& entry : batch.prompt_logprobs) prompt_logprobs.push_back(std::move(entry));
  num_cached_tokens = std::max(num_cached_tokens, batch.num_cached_tokens);
  if (batch.end.has_value()) {
    CHECK(!end.has_value());
    end = batch.end;
    status = batch.status;
  }
}

Cluster::Cluster(const ClusterOptions& options)
    : options_(options), admission_(options.config.max_queued) {
  served_.description = FakeDescription(options.model, options.geometry);
  std::vector<WorkerEndpoint> endpoints;
  std::vector<WorkerListener*> listeners;
  for (int i = 0; i < options.num_workers; ++i) {
    const auto other = options.other_geometries.find(i);
    const proto::Geometry& geometry =
        other == options.other_geometries.end() ? options.geometry : other->second;
    auto worker = std::make_unique<FakeWorkerClient>(options.model, geometry);
    workers_.push_back(worker.get());
    endpoints.push_back({.address = "w" + std::to_string(i), .client = std::move(worker)});
    listeners_.push_back(std::make_unique<Listener>(*this, i));
    listeners.push_back(listeners_.back().get());
  }
  core_ = std::make_unique<EngineCore>(
      options.config, WorkerPool(std::move(endpoints), std::move(listeners), metrics_), hasher_,
      admission_, metrics_);
  Pump();
  for (int i = 0; i < options.num_workers; ++i) Deliver(i);
}

Cluster::~Cluster() = default;

void Cluster::Discover(const std::string& address, const proto::Geometry& geometry) {
  CHECK(core_->SetListed({address}).size() == 1);
  auto worker = std::make_unique<FakeWorkerClient>(options_.model, geometry);
  CHECK(core_->FreePlace() == num_workers());
  listeners_.push_back(std::make_unique<Listener>(*this, num_workers()));
  workers_.push_back(worker.get());
  core_->AddWorker({.address = address, .client = std::move(worker)}, listeners_.back().get());
  Pump();
}

Client* Cluster::Submit(SequenceRequest request) {
  auto client = std::make_unique<Client>();
  client->request = request;
  client->stream = std::make_shared<TokenStream>([] {});
  CHECK(admission_.Enter(client->request.key_id, 1).ok());
  std::vector<std::unique_ptr<router::Sequence>> sequences;
  sequences.push_back(
      router::MakeSequence(std::move(request), client->stream, served_.description, hasher_));
  core_->OnSubmitted(std::move(sequences), clock_.Now());
  clients_.push_back(std::move(client));
  Pump();
  return clients_.back().get();
}

void Cluster::Close(Client& client) {
  client.stream->Close();
  core_->OnStreamsClosed();
  Pump();
}

void Cluster::Pump() { core_->Pump(clock_.Now(), false); }

bool Cluster::Deliver(int worker) {
  const bool delivered = workers_[static_cast<size_t>(worker)]->Deliver();
  Pump();
  return delivered;
}

void Cluster::RunUntilIdle() {
  for (bool busy = true; busy;) {
    busy = false;
    for (int i = 0; i < num_workers(); ++i) busy |= Deliver(i);
  }
  for (const auto& client : clients_) client->Read();
}

void Cluster::Advance(absl::Duration by) {
  clock_.Advance(by);
  Pump();
}

std::vector<int32_t> Cluster::Expected(const Client& client) const {
  return ExpectedOutput(options_.model, client.request.prompt, client.request.sampling,
                        client.request.max_tokens);
}

ReplicaMetrics Cluster::Metrics(int worker) {
  return metrics_.ForReplica("w" + std::to_string(worker));
}

SequenceRequest MakeRequest(int prompt_len, int max_tokens, int64_t seed) {
  SequenceRequest request;
  request.request_id = "r" + std::to_string(seed);
  std::minstd_rand random(static_cast<unsigned>(seed));
  for (int i = 0; i < prompt_len; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random() % 1000));
  }
  request.sampling.set_seed(seed);
  request.sampling.add_stop_token_ids(5);
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace weightless::testing
