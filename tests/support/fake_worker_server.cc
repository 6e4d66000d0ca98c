#include "tests/support/fake_worker_server.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "proto/worker.grpc.pb.h"

namespace weightless::testing {

namespace {

constexpr size_t kChunkBytes = 1 << 20;

// What all calls share.
struct State {
  explicit State(const FakeWorkerOptions& o)
      : options(o),
        description(FakeDescription(o.model, o.geometry)),
        engine(o.model, o.geometry) {}

  const FakeWorkerOptions options;
  const proto::Description description;
  mutable absl::Mutex mutex;
  FakeEngine engine ABSL_GUARDED_BY(mutex);
  bool owned ABSL_GUARDED_BY(mutex) = false;
  int num_reactors ABSL_GUARDED_BY(mutex) = 0;  // of Run
  absl::Status violation ABSL_GUARDED_BY(mutex);
};

class FilesWriter : public grpc::ServerWriteReactor<proto::FileChunk> {
 public:
  explicit FilesWriter(const std::map<std::string, std::string>& files) {
    for (const auto& [name, data] : files) {
      for (size_t begin = 0; begin == 0 || begin < data.size(); begin += kChunkBytes) {
        proto::FileChunk& chunk = chunks_.emplace_back();
        chunk.set_name(name);
        chunk.set_data(data.substr(begin, kChunkBytes));
        chunk.set_last(begin + kChunkBytes >= data.size());
      }
    }
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    chunks_.pop_front();
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (chunks_.empty()) return Finish(grpc::Status::OK);
    StartWrite(&chunks_.front());
  }
  std::deque<proto::FileChunk> chunks_;
};

// Reads a plan, executes it, and reads the next; writes go out beside that.
class RunReactor : public grpc::ServerBidiReactor<proto::StepPlan, proto::StepResult> {
 public:
  explicit RunReactor(State& state) : state_(state) {
    {
      absl::MutexLock lock(&state_.mutex);
      ++state_.num_reactors;
      is_owner_ = !std::exchange(state_.owned, true);
    }
    if (!is_owner_) {
      Finish(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "owned by another router"));
      return;
    }
    StartSendInitialMetadata();
    StartRead(&plan_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);
    absl::StatusOr<proto::StepResult> result = Execute();
    if (!result.ok()) {
      return End(grpc::Status(static_cast<grpc::StatusCode>(result.status().code()),
                              std::string(result.status().message())));
    }
    {
      absl::MutexLock lock(&mutex_);
      results_.push_back(*std::move(result));
      if (results_.size() == 1) StartWrite(&results_.front());
    }
    StartRead(&plan_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    results_.pop_front();
    if (!ok) results_.clear();
    if (!results_.empty()) {
      StartWrite(&results_.front());
    } else if (end_.has_value()) {
      Finish(*end_);
    }
  }

  void OnDone() override {
    State& state = state_;
    const bool was_owner = is_owner_;
    delete this;
    absl::MutexLock lock(&state.mutex);
    --state.num_reactors;
    if (!was_owner) return;
    state.engine.Reset();
    state.owned = false;
  }

 private:
  absl::StatusOr<proto::StepResult> Execute() {
    const FakeWorkerOptions& options = state_.options;
    if (options.on_step) options.on_step(plan_.step());
    if (options.step_time > absl::ZeroDuration()) absl::SleepFor(options.step_time);
    absl::MutexLock lock(&state_.mutex);
    ASSIGN_OR_RETURN(proto::StepResult result, state_.engine.Step(plan_));
    result.set_compute_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(options.step_time)));
    return result;
  }

  void End(const grpc::Status& status) {
    if (!status.ok()) {
      absl::MutexLock lock(&state_.mutex);
      state_.violation.Update(absl::InternalError(status.error_message()));
    }
    absl::MutexLock lock(&mutex_);
    end_ = status;
    if (results_.empty()) Finish(status);
  }

  State& state_;
  bool is_owner_ = false;
  proto::StepPlan plan_;
  absl::Mutex mutex_;
  std::deque<proto::StepResult> results_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);        // after the last result
};

class Service : public proto::Worker::CallbackService {
 public:
  explicit Service(State& state) : state_(state) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const proto::DescribeRequest*,
                                     proto::Description* description) override {
    *description = state_.description;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<proto::FileChunk>* ModelFiles(grpc::CallbackServerContext*,
                                                         const proto::ModelFilesRequest*) override {
    return new FilesWriter(state_.options.files);
  }
  grpc::ServerBidiReactor<proto::StepPlan, proto::StepResult>* Run(
      grpc::CallbackServerContext*) override {
    return new RunReactor(state_);
  }

 private:
  State& state_;
};

class Server : public FakeWorkerServer {
 public:
  explicit Server(const FakeWorkerOptions& options) : state_(options), service_(state_) {}
  ~Server() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    absl::MutexLock lock(&state_.mutex);
    state_.mutex.Await(absl::Condition(
        +[](int* num_reactors) { return *num_reactors == 0; }, &state_.num_reactors));
  }

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 300);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(state_.options.address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", state_.options.address));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  absl::Status violation() const override {
    absl::MutexLock lock(&state_.mutex);
    return state_.violation;
  }
  void Wait() override { server_->Wait(); }

 private:
  State state_;
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ReadModelFiles(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer.model", "tokenizer_config.json", "chat_template.jinja"}) {
    std::ifstream in(absl::StrCat(folder, "/", name), std::ios::binary);
    if (!in) continue;
    files[name].assign(std::istreambuf_iterator<char>(in), {});
  }
  if (files.empty()) return absl::NotFoundError(absl::StrCat("no model files in ", folder));
  return files;
}

absl::StatusOr<std::unique_ptr<FakeWorkerServer>> FakeWorkerServer::Start(
    const FakeWorkerOptions& options) {
  auto server = std::make_unique<Server>(options);
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace weightless::testing
