// The gRPC edge with a real client in this process.
#include "worker/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "proto/health.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

using testing::HasSubstr;

const std::map<std::string, std::string> kFiles = {
    {"config.json", "{}"},
    {"empty.json", ""},
    {"tokenizer.json", std::string((5 << 20) / 2, 'x')},
};

struct Server {
  explicit Server(int steps_in_flight)
      : engine(MakeTestEngine({.dtype = kernels::DType::kBF16,
                               .engine = {.num_slots = 8,
                                          .num_full_blocks = 64,
                                          .num_sliding_blocks = 64,
                                          .steps_in_flight = steps_in_flight}})) {}

  std::unique_ptr<Engine> engine;
  std::unique_ptr<WorkerService> service = Start();
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(service->address(), grpc::InsecureChannelCredentials());
  std::unique_ptr<proto::Worker::Stub> stub = proto::Worker::NewStub(channel);

  std::unique_ptr<WorkerService> Start() {
    auto started = WorkerService::Start("127.0.0.1:0", *engine, kFiles);
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }
};

// One Run call. Every wait in it has a deadline.
class Owner {
 public:
  Owner(Server& server, std::string name) : name_(std::move(name)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = server.stub->Run(&context_);
  }

  bool Send(proto::StepPlan plan) {
    plan.set_step(++step_);
    if (step_ == 1) plan.set_owner(name_);
    return stream_->Write(plan);
  }
  bool Receive(proto::StepResult& result) { return stream_->Read(&result); }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  const std::string name_;
  uint64_t step_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::StepPlan, proto::StepResult>> stream_;
};

// By steps in flight.
class WorkerServiceTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(StepsInFlight, WorkerServiceTest, testing::Values(1, 3));

// Admits into slot 0 and prefills.
proto::StepPlan FirstPlan(const std::vector<int32_t>& prompt) {
  proto::StepPlan plan;
  AddAdmit(plan, 0, prompt);
  AddBlocks(plan, 0, 0, {0, 1}, {0, 1});
  AddPrefill(plan, 0, static_cast<int>(prompt.size()));
  return plan;
}

TEST_P(WorkerServiceTest, DescribesItselfAndIsHealthy) {
  Server server(GetParam());
  grpc::ClientContext describe;
  proto::Description description;
  ASSERT_TRUE(server.stub->Describe(&describe, {}, &description).ok());
  EXPECT_EQ(description.SerializeAsString(), server.engine->DescribeNow().SerializeAsString());

  const auto health = grpc::health::v1::Health::NewStub(server.channel);
  grpc::ClientContext check;
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(health->Check(&check, {}, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_P(WorkerServiceTest, StreamsModelFilesInChunks) {
  Server server(GetParam());
  grpc::ClientContext context;
  const auto stream = server.stub->ModelFiles(&context, {});
  std::map<std::string, std::string> files;
  std::map<std::string, int> num_last;
  proto::FileChunk chunk;
  while (stream->Read(&chunk)) {
    EXPECT_LE(chunk.data().size(), size_t{1} << 20);
    files[chunk.name()] += chunk.data();
    num_last[chunk.name()] += chunk.last() ? 1 : 0;
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(files == kFiles);
  for (const auto& [name, count] : num_last) EXPECT_EQ(count, 1) << name;
}

TEST_P(WorkerServiceTest, AnswersPlansSentAheadInOrder) {
  Server server(GetParam());
  const std::vector<int32_t> prompt = ArbitraryPrompt(40, 1);
  const Generated alone =
      GenerateAlone(*MakeTestEngine({.dtype = kernels::DType::kBF16}), prompt, 30);
  Owner owner(server, "router-1");
  ASSERT_TRUE(owner.Send(FirstPlan(prompt)));
  proto::StepPlan plan;
  SetDecode(plan, {0});
  for (int i = 1; i < 30; ++i) {
    ASSERT_TRUE(owner.Send(plan));
    plan.Clear();
  }
  owner.HalfClose();
  std::vector<int32_t> tokens;
  proto::StepResult result;
  while (owner.Receive(result)) {
    EXPECT_EQ(result.step(), tokens.size() + 1);
    ASSERT_EQ(result.slots_size(), 1);
    tokens.push_back(result.slots(0).token());
  }
  EXPECT_TRUE(owner.Finish().ok());
  EXPECT_EQ(tokens, alone.tokens);
}

TEST_P(WorkerServiceTest, RefusesASecondOwnerNamingTheFirst) {
  Server server(GetParam());
  Owner first(server, "router-1");
  ASSERT_TRUE(first.Send(FirstPlan({2, 3})));
  proto::StepResult result;
  ASSERT_TRUE(first.Receive(result));

  Owner second(server, "router-2");
  const grpc::Status refused = second.Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("router-1"));

  // The first is not disturbed.
  proto::StepPlan plan;
  SetDecode(plan, {0});
  ASSERT_TRUE(first.Send(plan));
  ASSERT_TRUE(first.Receive(result));
  EXPECT_EQ(result.slots_size(), 1);
}

TEST_P(WorkerServiceTest, BrokenStreamFreesSlotsForTheNextOwner) {
  Server server(GetParam());
  const std::vector<int32_t> prompt = ArbitraryPrompt(40, 1);
  for (int round = 0; round < 20; ++round) {
    Owner owner(server, "router");
    ASSERT_TRUE(owner.Send(FirstPlan(prompt)));
    proto::StepResult result;
    ASSERT_TRUE(owner.Receive(result)) << owner.Finish().error_message();
    EXPECT_EQ(result.step(), 1u);
    // More plans are under way when it breaks.
    proto::StepPlan plan;
    SetDecode(plan, {0});
    for (int i = 0; i < 5; ++i) owner.Send(plan);
    owner.Cancel();
    EXPECT_EQ(owner.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_P(WorkerServiceTest, BadPlanEndsTheStreamAfterTheResultsBeforeIt) {
  Server server(GetParam());
  {
    Owner owner(server, "router-1");
    ASSERT_TRUE(owner.Send(FirstPlan({2, 3})));
    proto::StepPlan bad;
    bad.add_release(99);
    ASSERT_TRUE(owner.Send(bad));
    proto::StepResult result;
    EXPECT_TRUE(owner.Receive(result));
    EXPECT_FALSE(owner.Receive(result));
    const grpc::Status status = owner.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("release 99 is not below num_slots 8"));
  }
  Owner next(server, "router-2");
  ASSERT_TRUE(next.Send(FirstPlan({2, 3})));
  proto::StepResult result;
  EXPECT_TRUE(next.Receive(result));
}

TEST_P(WorkerServiceTest, RefusesAPortInUse) {
  Server server(GetParam());
  const auto second = WorkerService::Start(server.service->address(), *server.engine, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server.service->address()));
}

TEST_P(WorkerServiceTest, StopsWithAStreamOpen) {
  Server server(GetParam());
  Owner owner(server, "router-1");
  ASSERT_TRUE(owner.Send(FirstPlan({2, 3})));
  proto::StepResult result;
  ASSERT_TRUE(owner.Receive(result));
  server.service.reset();
  EXPECT_FALSE(owner.Receive(result));
  EXPECT_FALSE(owner.Finish().ok());
}

}  // namespace
}  // namespace weightless::worker
