#include "router/engine_loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"

namespace weightless::router {

namespace {

// A snapshot of the loads is at most so old.
constexpr absl::Duration kLoadsInterval = absl::Milliseconds(20);

// Workers that discovery may find; more are ignored.
constexpr size_t kMaxDiscovered = 256;

// Events that the queue must hold at once: each queued sequence its own submission; of each replica
// its results and a beginning and an end of a connection; a StreamsClosed; lists of workers; a
// drain.
size_t QueueCapacity(const EngineConfig& config, size_t num_configured, bool discovers) {
  const size_t num_replicas = num_configured + (discovers ? kMaxDiscovered : 0);
  const auto per_replica = static_cast<size_t>(config.plan_ahead) + 4;
  return static_cast<size_t>(config.max_queued) + num_replicas * per_replica + 64;
}

// A tokenizer may know tokens that its model has no embedding for.
absl::Status CheckTokens(const SequenceRequest& sequence, uint32_t vocab_size) {
  for (size_t i = 0; i < sequence.prompt.size(); ++i) {
    const int32_t token = sequence.prompt[i];
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("prompt token ", token, " at position ", i,
                                                   " is outside the model's vocabulary of ",
                                                   vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace

class EngineLoop::Listener : public WorkerListener {
 public:
  Listener(EngineLoop& loop, int replica_idx) : loop_(loop), replica_idx_(replica_idx) {}

  void OnReady(uint64_t connection_id, WorkerHello hello) override {
    // Here and not on the engine thread: building a tokenizer takes a second.
    const absl::Status status = loop_.DefineModel(hello);
    if (!status.ok()) return OnLost(connection_id, status);
    loop_.PushInternal(WorkerReady{replica_idx_, connection_id, std::move(hello.description)});
  }
  void OnResult(uint64_t connection_id, proto::StepResult result) override {
    loop_.PushInternal(ResultArrived{replica_idx_, connection_id, std::move(result)});
  }
  void OnLost(uint64_t connection_id, absl::Status status) override {
    loop_.PushInternal(WorkerLost{replica_idx_, connection_id, std::move(status)});
  }

 private:
  EngineLoop& loop_;
  const int replica_idx_;
};

EngineLoop::EngineLoop(const EngineConfig& config, std::vector<WorkerEndpoint> endpoints,
                       RouterMetrics& metrics, const Clock& clock, WorkerClientFactory make_client)
    : config_(config),
      metrics_(metrics),
      clock_(clock),
      make_client_(std::move(make_client)),
      admission_(config.max_queued),
      events_(QueueCapacity(config, endpoints.size(), make_client_ != nullptr)),
      core_(config, MakePool(std::move(endpoints)), hasher_, admission_, metrics) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "engine");
    Run();
  });
}

WorkerPool EngineLoop::MakePool(std::vector<WorkerEndpoint> endpoints) {
  std::vector<WorkerListener*> listeners;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    listeners_.push_back(std::make_unique<Listener>(*this, static_cast<int>(i)));
    listeners.push_back(listeners_.back().get());
  }
  return WorkerPool(std::move(endpoints), std::move(listeners), metrics_);
}

EngineLoop::~EngineLoop() { Stop(); }

void EngineLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  admission_.SetDraining();
  events_.Close();
  thread_.join();
}

void EngineLoop::PushInternal(Event event) {
  // Fails only when the loop is stopped: then nobody waits for it.
  if (!events_.Push(std::move(event))) CHECK(events_.closed());
}

absl::Status EngineLoop::DefineModel(WorkerHello& hello) {
  if (model() != nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDescription(hello.description));
  ASSIGN_OR_RETURN(auto tokenizer, model::Tokenizer::FromModelFiles(hello.files));
  if (tokenizer->vocab_size() > static_cast<int>(hello.description.model().vocab_size())) {
    LogWarning("tokenizer_exceeds_model", {{"tokenizer", tokenizer->vocab_size()},
                                           {"model", hello.description.model().vocab_size()}});
  }
  auto served = std::make_shared<ServedModel>();
  served->description = hello.description;
  served->files = std::move(hello.files);
  served->tokenizer = std::move(tokenizer);
  served->loaded_at = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (model_ != nullptr) return absl::OkStatus();
  admission_.SetLengthLimit(LimitOf(served->description.geometry()));  // known with the model
  model_ = std::move(served);
  return absl::OkStatus();
}

std::shared_ptr<const ServedModel> EngineLoop::model() const {
  absl::MutexLock lock(&mutex_);
  return model_;
}

absl::Status EngineLoop::Admit(const std::string& key_id, int num_sequences) const {
  return admission_.Check(key_id, num_sequences);
}

absl::Status EngineLoop::Submit(std::vector<SequenceRequest> sequences,
                                std::vector<std::shared_ptr<TokenStream>> streams) {
  CHECK(sequences.size() == streams.size() && !sequences.empty());
  const std::shared_ptr<const ServedModel> served = model();
  if (served == nullptr) return absl::UnavailableError("no worker has been ready yet");
  for (const SequenceRequest& sequence : sequences) {
    RETURN_IF_ERROR(CheckTokens(sequence, served->description.model().vocab_size()));
    RETURN_IF_ERROR(admission_.CheckFits(sequence));
  }
  const std::string key_id = sequences[0].key_id;  // one request, one key
  Submitted event;
  for (size_t i = 0; i < sequences.size(); ++i) {
    event.sequences.push_back(
        MakeSequence(std::move(sequences[i]), std::move(streams[i]), served->description, hasher_));
  }
  const int num_sequences = static_cast<int>(event.sequences.size());
  RETURN_IF_ERROR(admission_.Enter(key_id, num_sequences));
  if (!events_.Push(std::move(event))) {
    admission_.Leave(key_id, num_sequences);
    return absl::UnavailableError("the server is shutting down");
  }
  return absl::OkStatus();
}

void EngineLoop::NotifyClosed() {
  if (closed_pending_.exchange(true)) return;
  PushInternal(StreamsClosed{});
}

Loads EngineLoop::loads() const {
  absl::MutexLock lock(&mutex_);
  return loads_;
}

void EngineLoop::SetDiscovered(std::vector<std::string> addresses) {
  CHECK(make_client_ != nullptr);
  if (addresses.size() > kMaxDiscovered) {
    LogWarning("too_many_workers", {{"found", addresses.size()}, {"used", kMaxDiscovered}});
    addresses.resize(kMaxDiscovered);
  }
  PushInternal(WorkersListed{std::move(addresses)});
}

void EngineLoop::Drain(absl::Time deadline) {
  admission_.SetDraining();
  absl::Notification done;
  if (events_.Push(DrainBegun{deadline, &done})) done.WaitForNotification();
}

void EngineLoop::Run() {
  while (true) {
    const absl::Time before = clock_.Now();
    core_.Pump(before, model() == nullptr);
    AdvanceDrain(before);
    RefreshLoads(before);
    const bool is_closed = events_.closed();  // asked first: after it nothing is pushed
    std::deque<Event> events = events_.PopAll(NextWake(before));
    if (events.empty() && is_closed) break;
    const absl::Time now = clock_.Now();
    for (Event& event : events) Handle(std::move(event), now);
    loads_are_stale_ |= !events.empty();
  }
  core_.EndAll(absl::UnavailableError("the server is shutting down"));
  AdvanceDrain(clock_.Now());
  core_.DisconnectAll();
}

void EngineLoop::Handle(Event event, absl::Time now) {
  if (auto* submitted = std::get_if<Submitted>(&event)) {
    core_.OnSubmitted(std::move(submitted->sequences), now);
  } else if (auto* arrived = std::get_if<ResultArrived>(&event)) {
    core_.OnResult(arrived->replica_idx, arrived->connection_id, arrived->result, now);
  } else if (std::holds_alternative<StreamsClosed>(event)) {
    closed_pending_ = false;  // first: a stream closed from here on raises another event
    core_.OnStreamsClosed();
  } else if (auto* ready = std::get_if<WorkerReady>(&event)) {
    core_.OnWorkerReady(ready->replica_idx, ready->connection_id, ready->description, *model(),
                        now);
  } else if (auto* lost = std::get_if<WorkerLost>(&event)) {
    core_.OnWorkerLost(lost->replica_idx, lost->connection_id, lost->status, now);
  } else if (auto* listed = std::get_if<WorkersListed>(&event)) {
    AddMissing(listed->addresses);
  } else {
    drains_.push_back(std::get<DrainBegun>(event));
  }
}

void EngineLoop::AddMissing(const std::vector<std::string>& listed) {
  for (const std::string& address : core_.SetListed(listed)) {
    const auto place = static_cast<size_t>(core_.FreePlace());
    if (place == listeners_.size()) {
      listeners_.push_back(std::make_unique<Listener>(*this, static_cast<int>(place)));
    }
    core_.AddWorker({address, make_client_(address)}, listeners_[place].get());
  }
}

void EngineLoop::AdvanceDrain(absl::Time now) {
  for (const DrainBegun& drain : drains_) {
    if (now >= drain.deadline) core_.EndAll(absl::UnavailableError("the server is shutting down"));
  }
  if (!core_.idle()) return;
  for (const DrainBegun& drain : drains_) drain.done->Notify();
  drains_.clear();
}

void EngineLoop::RefreshLoads(absl::Time now) {
  if (!loads_are_stale_ || now < loads_at_ + kLoadsInterval) return;
  Loads loads = core_.ComputeLoads();
  loads_at_ = now;
  loads_are_stale_ = false;
  absl::MutexLock lock(&mutex_);
  loads_ = std::move(loads);
}

absl::Time EngineLoop::NextWake(absl::Time now) const {
  absl::Time next = core_.NextPump();
  for (const DrainBegun& drain : drains_) next = std::min(next, drain.deadline);
  if (loads_are_stale_) next = std::min(next, loads_at_ + kLoadsInterval);
  return absl::Now() + (next - now);
}

}  // namespace weightless::router
