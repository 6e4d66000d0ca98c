#include "router/grpc_worker_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/status.h"
#include "proto/worker.grpc.pb.h"

namespace weightless::router {

namespace {

constexpr auto kDescribeTimeout = std::chrono::seconds(5);
constexpr auto kFilesTimeout = std::chrono::seconds(60);
constexpr int kKeepaliveMs = 1000;
constexpr int kKeepaliveTimeoutMs = 2000;
constexpr int kMaxMessageBytes = 64 << 20;
constexpr size_t kMaxFilesBytes = 256 << 20;
constexpr size_t kMaxNumFiles = 64;

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Where a worker is, and how to talk to it.
struct Target {
  std::string address;
  GrpcTls* tls = nullptr;   // null: without TLS
  std::string server_name;  // expected in its certificate; empty: the host of the address
};

std::shared_ptr<grpc::Channel> MakeChannel(const Target& target) {
  grpc::ChannelArguments args;
  if (!target.server_name.empty()) args.SetSslTargetNameOverride(target.server_name);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Each attempt connects anew; when to try again is the pool's decision.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(target.address, ChannelCredentials(target.tls), args);
}

// Connections until they are over and gone. A connection must not be destroyed in its last
// callback: with the last channel of a process go the threads that run gRPC's callbacks, and a
// thread cannot wait for its own end. So it is kept here for the client's thread.
class Departures {
 public:
  void Add() {
    absl::MutexLock lock(&mutex_);
    ++num_open_;
  }
  void Depart(std::shared_ptr<void> connection) {
    absl::MutexLock lock(&mutex_);
    departed_.push_back(std::move(connection));
    --num_open_;
  }
  // Not in a callback.
  void DestroyDeparted() {
    std::vector<std::shared_ptr<void>> departed;  // outlives the lock
    absl::MutexLock lock(&mutex_);
    departed.swap(departed_);
  }
  void AwaitAll() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* num_open) { return *num_open == 0; }, &num_open_));
  }

 private:
  absl::Mutex mutex_;
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<void>> departed_ ABSL_GUARDED_BY(mutex_);
};

// One connection, from Describe to the end of Run. `self_` keeps it until its last callback.
class Connection : public grpc::ClientBidiReactor<proto::StepPlan, proto::StepResult> {
 public:
  Connection(const Target& target, const WorkerClient::ConnectOptions& options,
             Departures& departures)
      : options_(options),
        departures_(departures),
        stub_(proto::Worker::NewStub(MakeChannel(target))),
        files_reader_(*this) {
    departures_.Add();
  }

  void Start(std::shared_ptr<Connection> self) {
    self_ = std::move(self);
    describe_context_.set_deadline(std::chrono::system_clock::now() + kDescribeTimeout);
    stub_->async()->Describe(&describe_context_, &describe_request_, &hello_.description,
                             [this](const grpc::Status& status) { OnDescribed(status); });
  }

  void Send(proto::StepPlan plan) {
    absl::MutexLock lock(&mutex_);
    if (!can_write_) return;
    plans_.push_back(std::move(plan));
    ++num_unanswered_;
    if (plans_.size() == 1) StartWrite(&plans_.front());
  }

  // Cancels whatever call is open; no new one is begun.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    describe_context_.TryCancel();
    files_context_.TryCancel();
    run_context_.TryCancel();
  }

 private:
  class FilesReader : public grpc::ClientReadReactor<proto::FileChunk> {
   public:
    explicit FilesReader(Connection& connection) : connection_(connection) {}
    void Start() {
      connection_.files_context_.set_deadline(std::chrono::system_clock::now() + kFilesTimeout);
      connection_.stub_->async()->ModelFiles(&connection_.files_context_, &request_, this);
      StartRead(&chunk_);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      problem_.Update(Append());
      if (!problem_.ok()) {
        connection_.files_context_.TryCancel();
        return;
      }
      StartRead(&chunk_);
    }
    void OnDone(const grpc::Status& status) override {
      connection_.OnFiles(problem_.ok() ? FromGrpc(status) : problem_);
    }

   private:
    absl::Status Append() {
      auto& files = connection_.hello_.files;
      num_bytes_ += chunk_.data().size();
      if (num_bytes_ > kMaxFilesBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("model files exceed ", kMaxFilesBytes, " bytes"));
      }
      files[chunk_.name()] += chunk_.data();
      if (files.size() > kMaxNumFiles) {
        return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxNumFiles, " model files"));
      }
      return absl::OkStatus();
    }

    Connection& connection_;
    proto::ModelFilesRequest request_;
    proto::FileChunk chunk_;
    size_t num_bytes_ = 0;
    absl::Status problem_;
  };

  bool cancelled() const {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }

  void OnDescribed(const grpc::Status& status) {
    if (!status.ok()) return Finish(FromGrpc(status));
    if (cancelled()) return Finish(absl::CancelledError("disconnected"));
    if (options_.want_files) {
      files_reader_.Start();
    } else {
      OpenRun();
    }
  }

  void OnFiles(const absl::Status& status) {
    if (!status.ok()) return Finish(status);
    if (cancelled()) return Finish(absl::CancelledError("disconnected"));
    OpenRun();
  }

  void OpenRun() {
    stub_->async()->Run(&run_context_, this);
    StartRead(&result_);
    AddHold();  // plans come from outside of this reactor's callbacks
    StartCall();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;  // refused; OnDone tells why
    {
      absl::MutexLock lock(&mutex_);
      if (over_) return;
      can_write_ = true;
    }
    options_.listener->OnReady(options_.connection_id, std::move(hello_));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return StopWriting();
    bool expected = false;
    {
      absl::MutexLock lock(&mutex_);
      expected = num_unanswered_ > 0;
      if (expected) {
        --num_unanswered_;
      } else {
        problem_ = absl::InternalError("a result came without a plan");
        run_context_.TryCancel();
      }
    }
    if (expected) options_.listener->OnResult(options_.connection_id, std::move(result_));
    result_.Clear();
    StartRead(&result_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    plans_.pop_front();
    if (ok && can_write_ && !plans_.empty()) StartWrite(&plans_.front());
  }

  // The stream is broken or over: nothing more goes out, and OnDone may come.
  void StopWriting() {
    {
      absl::MutexLock lock(&mutex_);
      can_write_ = false;
      if (std::exchange(over_, true)) return;
    }
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status problem;
    {
      absl::MutexLock lock(&mutex_);
      problem = problem_;
    }
    if (problem.ok()) problem = FromGrpc(status);
    if (problem.ok()) problem = absl::UnavailableError("the worker ended the stream");
    Finish(problem);
  }

  void Finish(const absl::Status& status) {
    options_.listener->OnLost(options_.connection_id, status);
    departures_.Depart(std::move(self_));  // from here on *this may be gone
  }

  const WorkerClient::ConnectOptions options_;
  Departures& departures_;
  const std::unique_ptr<proto::Worker::Stub> stub_;
  std::shared_ptr<Connection> self_;  // until Finish: callbacks use a plain `this`

  grpc::ClientContext describe_context_, files_context_, run_context_;
  proto::DescribeRequest describe_request_;
  WorkerHello hello_;
  FilesReader files_reader_;
  proto::StepResult result_;

  mutable absl::Mutex mutex_;
  std::deque<proto::StepPlan> plans_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  int num_unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool can_write_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
};

class GrpcWorkerClient : public WorkerClient {
 public:
  explicit GrpcWorkerClient(Target target) : target_(std::move(target)) {}
  ~GrpcWorkerClient() override {
    Disconnect();
    departures_.AwaitAll();
    departures_.DestroyDeparted();
  }

  void Connect(const ConnectOptions& options) override {
    Disconnect();
    connection_ = std::make_shared<Connection>(target_, options, departures_);
    connection_->Start(connection_);
  }
  void Send(proto::StepPlan plan) override {
    if (connection_ != nullptr) connection_->Send(std::move(plan));
  }
  void Disconnect() override {
    if (connection_ != nullptr) connection_->Cancel();
    connection_.reset();
    departures_.DestroyDeparted();
  }

 private:
  const Target target_;
  Departures departures_;
  std::shared_ptr<Connection> connection_;  // shared with its own callbacks
};

}  // namespace

std::unique_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& address) {
  return std::make_unique<GrpcWorkerClient>(
      Target{.address = address, .tls = nullptr, .server_name = {}});
}

std::unique_ptr<WorkerClient> MakeTlsWorkerClient(const std::string& address, GrpcTls& tls,
                                                  const std::string& server_name) {
  return std::make_unique<GrpcWorkerClient>(
      Target{.address = address, .tls = &tls, .server_name = server_name});
}

}  // namespace weightless::router
