#include "worker/worker_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/concat.h"
#include "common/grpc_log.h"
#include "common/grpc_tls.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status.h"
#include "common/worker_facts.h"
#include "proto/worker.grpc.pb.h"
#include "worker/engine_thread.h"
#include "worker/tls_listener.h"

namespace weightless::worker {
namespace {

constexpr size_t kFileChunkBytes = size_t{1} << 20;
constexpr int kMaxPlanBytes = 64 << 20;  // many admissions of long contexts in one plan
// A router that vanished without a word is noticed within the sum of the two.
constexpr int kKeepaliveTimeMs = 3000;
constexpr int kKeepaliveTimeoutMs = 5000;
// How long a second caller waits for the lease before it is refused.
constexpr int kLeaseRetries = 10;
constexpr std::chrono::milliseconds kLeaseRetryInterval(20);
// Who connects and then says nothing does not hold a socket for longer.
constexpr int kHandshakeTimeoutMs = 10000;

using grpc::experimental::ExternalConnectionAcceptor;

// absl's codes are gRPC's.
grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// One Run call. gRPC calls the On... methods, the engine thread the stream's events; no operation
// is started with mutex_ held.
class RunCall : public grpc::ServerBidiReactor<proto::StepPlan, proto::StepResult>,
                public std::enable_shared_from_this<RunCall> {
 public:
  RunCall(EngineThread& engine, std::string peer) : engine_(engine), peer_(std::move(peer)) {}

  void Begin() {
    self_ = shared_from_this();
    TakeLease(kLeaseRetries);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // Half-closed, or broken: then OnCancel follows.
      engine_.Finish(stream_);
      return;
    }
    if (const absl::Status status = engine_.Submit(stream_, std::move(plan_)); !status.ok()) {
      engine_.Abort(stream_);
      End(status);
      return;
    }
    plan_.Clear();
    StartRead(&plan_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      results_.pop_front();
      if (!ok) results_.clear();  // OnCancel follows
    }
    Advance();
  }

  void OnCancel() override {
    std::shared_ptr<EngineThread::Stream> stream;
    {
      absl::MutexLock lock(&mutex_);
      stream = stream_;
    }
    if (stream != nullptr) engine_.Abort(stream);
    End(absl::CancelledError("the stream broke"));
  }

  void OnDone() override {
    std::shared_ptr<EngineThread::Stream> stream;
    {
      absl::MutexLock lock(&mutex_);
      stream = std::exchange(stream_, nullptr);
    }
    if (stream != nullptr) {
      engine_.Abort(stream);
      LogInfo("owner_left", {{"peer", peer_}, {"status", end_->ToString()}});
    }
    lease_alarm_.reset();  // it holds a reference to this object
    self_.reset();
  }

 private:
  // Becomes the owner, now or within kLeaseRetries: when a router's stream broke and it came back
  // on the same connection, gRPC may report the new call before the end of the old one.
  void TakeLease(int retries_left) {
    absl::Status refused;
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      auto stream = engine_.Open(
          peer_, {.on_result = [self = self_](proto::StepResult r) { self->Send(std::move(r)); },
                  .on_end = [self = self_](const absl::Status& status) { self->End(status); }});
      refused = stream.status();
      if (stream.ok()) {
        stream_ = *std::move(stream);
        writing_ = true;  // holds Finish back until the first operations are started
      } else if (retries_left > 0) {
        lease_alarm_ = std::make_unique<grpc::Alarm>();
        lease_alarm_->Set(
            std::chrono::system_clock::now() + kLeaseRetryInterval,
            [self = self_, retries_left](bool) { self->TakeLease(retries_left - 1); });
        return;
      }
    }
    if (!refused.ok()) {
      LogWarning("owner_refused", {{"peer", peer_}, {"reason", std::string(refused.message())}});
      End(refused);
      return;
    }
    LogInfo("owner_connected", {{"peer", peer_}});
    StartSendInitialMetadata();  // tells the router that it is the owner
    StartRead(&plan_);
    Advance();
  }

  // Writes a result after those before it.
  void Send(proto::StepResult result) {
    bool idle = false, overflow = false;
    std::shared_ptr<EngineThread::Stream> stream;  // OnDone may take it meanwhile
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      stream = stream_;
      overflow = results_.size() >= kMaxPlansInFlight;
      if (!overflow) results_.push_back(std::move(result));
      idle = !writing_;
      writing_ = true;
    }
    if (idle) Advance();
    if (overflow) {
      engine_.Abort(stream);
      End(absl::ResourceExhaustedError(Concat("unread results exceed ", kMaxPlansInFlight)));
    }
  }

  // Ends the call with `status` once all results are written. Only the first status counts.
  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      end_ = status;
      if (writing_) return;  // Advance finishes
      writing_ = true;
    }
    Advance();
  }

  // Called by who set writing_ or saw the end of a write: the next write, else Finish, else rest.
  void Advance() {
    const proto::StepResult* next = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      if (!results_.empty()) {
        next = &results_.front();
      } else if (!end_.has_value()) {
        writing_ = false;
        return;
      }
      // Else writing_ stays: nothing may follow Finish.
    }
    if (next != nullptr) {
      StartWrite(next);
    } else {
      Finish(ToGrpc(*end_));
    }
  }

  EngineThread& engine_;
  const std::string peer_;
  std::shared_ptr<RunCall> self_;  // until OnDone: gRPC holds a plain pointer
  std::unique_ptr<grpc::Alarm> lease_alarm_;
  proto::StepPlan plan_;  // being read
  absl::Mutex mutex_;
  // Set once; read without the mutex by what can only come later.
  std::shared_ptr<EngineThread::Stream> stream_;
  std::optional<absl::Status> end_;
  std::deque<proto::StepResult> results_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
};

// Streams the model's files, one after the other in chunks.
class FileStream : public grpc::ServerWriteReactor<proto::FileChunk> {
 public:
  explicit FileStream(const std::map<std::string, std::string>& files)
      : files_(files), file_(files.begin()) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    if (file_ == files_.end()) {
      Finish(grpc::Status::OK);
      return;
    }
    const auto& [name, contents] = *file_;
    chunk_.set_name(name);
    chunk_.set_data(contents.substr(offset_, kFileChunkBytes));
    offset_ += chunk_.data().size();
    chunk_.set_last(offset_ == contents.size());
    if (chunk_.last()) {
      ++file_;
      offset_ = 0;
    }
    StartWrite(&chunk_);
  }

  const std::map<std::string, std::string>& files_;
  std::map<std::string, std::string>::const_iterator file_;
  size_t offset_ = 0;
  proto::FileChunk chunk_;
};

}  // namespace

class WorkerService::Impl : public proto::Worker::CallbackService {
 public:
  Impl(Engine& engine, std::map<std::string, std::string> model_files)
      : engine_(engine),
        metrics_(FactsOf(engine.DescribeNow())),
        model_files_(std::move(model_files)),
        engine_thread_(engine, metrics_) {}

  WorkerMetrics& metrics() { return metrics_; }

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const proto::DescribeRequest* /*request*/,
                                     proto::Description* response) override {
    *response = engine_.DescribeNow();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<proto::FileChunk>* ModelFiles(
      grpc::CallbackServerContext* /*context*/,
      const proto::ModelFilesRequest* /*request*/) override {
    return new FileStream(model_files_);
  }

  grpc::ServerBidiReactor<proto::StepPlan, proto::StepResult>* Run(
      grpc::CallbackServerContext* context) override {
    const auto call = std::make_shared<RunCall>(engine_thread_, context->peer());
    call->Begin();
    return call.get();
  }

  // The port, or 0 when it cannot listen.
  int Listen(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    BuildAndStart(builder);
    return server_ != nullptr ? port : 0;
  }

  void ListenWithTls(std::unique_ptr<TlsListener> listener, GrpcTls& tls) {
    grpc::ServerBuilder builder;
    using Builder = grpc::ServerBuilder::experimental_type;
    acceptor_ = Builder(&builder).AddExternalConnectionAcceptor(
        Builder::ExternalConnectionType::FROM_FD, tls.ServerCredentials());
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    BuildAndStart(builder);
    listener_ = std::move(listener);
    listener_->Start([this](int fd) {
      ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
    });
  }

  ~Impl() override {
    listener_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

 private:
  void BuildAndStart(grpc::ServerBuilder& builder) {
    grpc::EnableDefaultHealthCheckService(true);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(kMaxPlanBytes);
    // A port that another process listens on is an error, not shared with it.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // Routers ping every second, also between calls.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 300);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    server_ = builder.BuildAndStart();
  }

  const Engine& engine_;
  WorkerMetrics metrics_;
  const std::map<std::string, std::string> model_files_;
  EngineThread engine_thread_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ExternalConnectionAcceptor> acceptor_;  // with TLS, as the listener
  std::unique_ptr<TlsListener> listener_;
};

absl::StatusOr<std::unique_ptr<WorkerService>> WorkerService::Start(
    const std::string& address, Engine& engine, std::map<std::string, std::string> model_files,
    GrpcTls* tls) {
  RouteGrpcLog();
  const std::string host = address.substr(0, address.rfind(':'));
  auto impl = std::make_unique<Impl>(engine, std::move(model_files));
  int port = 0;
  if (tls != nullptr) {
    const std::optional<HostPort> parsed = ParseHostPort(address);
    ASSIGN_OR_RETURN(auto listener, TlsListener::Listen(host, parsed ? parsed->port : 0));
    port = listener->port();
    impl->ListenWithTls(std::move(listener), *tls);
  } else {
    port = impl->Listen(address);
  }
  if (port == 0) {
    return absl::InvalidArgumentError(
        Concat("cannot listen on ", address, ": in use, or no address of this machine"));
  }
  return std::unique_ptr<WorkerService>(
      new WorkerService(std::move(impl), Concat(host, ":", port)));
}

WorkerService::WorkerService(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

WorkerService::~WorkerService() = default;

WorkerMetrics& WorkerService::metrics() { return impl_->metrics(); }

}  // namespace weightless::worker
