#include "worker/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace weightless::worker {
namespace {

using testing::HasSubstr;

WorkerConfig Valid() {
  WorkerConfig config;
  config.model = "somewhere";
  return config;
}

void ExpectInvalid(const WorkerConfig& config, const char* message) {
  const absl::Status status = Validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(WorkerConfigTest, AcceptsAddressesWithAPort) {
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:65535", "localhost:50051", "[::1]:1"}) {
    WorkerConfig config = Valid();
    config.listen = address;
    EXPECT_EQ(Validate(config), absl::OkStatus()) << address;
  }
}

TEST(WorkerConfigTest, RefusesAddressesWithoutAPort) {
  for (const char* address : {"", "host", "host:", ":80", "host:65536", "host:-1", "host:8x"}) {
    WorkerConfig config = Valid();
    config.listen = address;
    ExpectInvalid(config, "is not host:port");
  }
}

TEST(WorkerConfigTest, NamesTheFlagThatIsWrong) {
  WorkerConfig config = Valid();
  config.model.clear();
  ExpectInvalid(config, "--model is missing");
  config = Valid();
  config.dtype = "int8";
  ExpectInvalid(config, "--dtype \"int8\"");
  for (const char* device :
       {"", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:64", "cuda:1x", "cuda0"}) {
    config = Valid();
    config.device = device;
    ExpectInvalid(config, "is none of cpu, cuda, cuda:N with N below 64");
  }
  config = Valid();
  config.kernels = "sse";
  ExpectInvalid(config, "--kernels \"sse\"");
  config = Valid();
  config.threads = -1;
  ExpectInvalid(config, "--threads -1 is outside 0 .. 1024");
  config = Valid();
  config.log_level = "loud";
  ExpectInvalid(config, "--log-level \"loud\"");
}

TEST(WorkerConfigTest, WorkersOnOneDeviceShareItsCores) {
  WorkerConfig config = Valid();
  const int alone = NumThreads(config);
  config.engine.workers_on_device = 2;
  EXPECT_EQ(NumThreads(config), std::max(1, alone / 2));
  config.engine.workers_on_device = 1000;
  EXPECT_EQ(NumThreads(config), 1);
  config.threads = 7;
  EXPECT_EQ(NumThreads(config), 7);
}

TEST(WorkerConfigTest, SaysThatThisBuildLacksTheDevice) {
  for (const char* device : {"cuda", "cuda:3"}) {
    WorkerConfig config = Valid();
    config.device = device;
    EXPECT_EQ(Validate(config), absl::OkStatus());
    const auto backend = MakeBackend(config);
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(backend.status().message()),
                HasSubstr(std::string("--device ") + device + ": this build has no CUDA backend"));
  }
}

TEST(WorkerConfigTest, MakesTheBackendThatIsAskedFor) {
  WorkerConfig config = Valid();
  config.kernels = "reference";
  config.dtype = "float32";
  const auto backend = MakeBackend(config);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->activation_type(), weightless::kernels::DType::kF32);
  EXPECT_EQ((*backend)->numerics(), "reference/float32");
}

}  // namespace
}  // namespace weightless::worker
