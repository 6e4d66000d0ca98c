// Engines that cannot be made, and weights that cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "model/checkpoint.h"
#include "tests/worker/forwarding_backend.h"
#include "worker/engine.h"

namespace weightless::worker {
namespace {

using kernels::DType;
using kernels::TensorView;
using testing::HasSubstr;

// The reference backend on a device of limited memory that may compute nonsense.
class PoorBackend : public kernels::ForwardingBackend {
 public:
  struct Traits {
    size_t memory_bytes = std::numeric_limits<size_t>::max();
    bool gives_nan = false;
  };
  explicit PoorBackend(Traits traits)
      : ForwardingBackend(kernels::MakeReferenceBackend(DType::kF32)), traits_(traits) {}

  size_t memory_total_bytes() const override { return traits_.memory_bytes; }
  size_t memory_allocated_bytes() const override { return used_bytes_; }
  std::unique_ptr<kernels::Buffer> Allocate(size_t size_bytes) override {
    if (size_bytes > traits_.memory_bytes - used_bytes_) return nullptr;
    used_bytes_ += size_bytes;
    return real_->Allocate(size_bytes);
  }
  std::unique_ptr<kernels::LinearWeight> PackDense(
      std::span<const kernels::DenseRows> stacked) override {
    auto weight = real_->PackDense(stacked);
    if (weight->size_bytes() > traits_.memory_bytes - used_bytes_) return nullptr;
    used_bytes_ += weight->size_bytes();
    return weight;
  }
  void Linear(TensorView x, const kernels::LinearWeight& w, TensorView out) override {
    real_->Linear(x, w, out);
    if (traits_.gives_nan) out.f32()[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const Traits traits_;
  size_t used_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<Engine>> Create(PoorBackend::Traits traits,
                                               const EngineOptions& options = {}) {
  const auto checkpoint = model::Checkpoint::Open(WEIGHTLESS_SOURCE_DIR "/models/tiny-gemma3");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return Engine::Create(**checkpoint, std::make_unique<PoorBackend>(traits), options);
}

TEST(EngineCreateTest, NamesTheOptionThatIsOutOfRange) {
  const std::pair<EngineOptions, const char*> cases[] = {
      {{.max_length = 1025}, "max_length 1025 is outside 2 .. 1024"},
      {{.max_length = 1}, "max_length 1"},
      {{.max_length = -1}, "max_length -1"},
      {{.num_slots = 0}, "num_slots 0 is outside 1 .. 4096"},
      {{.num_slots = 64, .max_step_tokens = 63}, "max_step_tokens 63 is outside 64 .. 65536"},
      {{.memory_utilization = 1.5}, "memory_utilization 1.5 is outside 0 .. 1"},
      {{.workers_on_device = 0}, "workers_on_device 0 is outside 1 .. 1024"},
      {{.num_full_blocks = -1}, "num_full_blocks -1"},
      {{.num_sliding_blocks = int64_t{1} << 40}, "num_sliding_blocks 1099511627776"},
  };
  for (const auto& [options, message] : cases) {
    const auto engine = Create({}, options);
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(message));
  }
}

TEST(EngineCreateTest, SaysWhatDoesNotFit) {
  const std::pair<size_t, const char*> cases[] = {
      {1 << 20, "no device memory for embed_tokens.weight"},
      {16 << 20, "no device memory for layers."},
      {32 << 20, "no device memory for the activations of 512 tokens"},
  };
  for (const auto& [memory_bytes, message] : cases) {
    const auto engine = Create({.memory_bytes = memory_bytes});
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted) << message;
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(message));
  }
  const auto engine = Create({.memory_bytes = 38 << 20});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(engine.status().message()),
              HasSubstr("KV cache of one sequence of 1024 tokens needs"));
}

TEST(EngineCreateTest, SizesTheKvCacheByTheMemoryThatIsLeft) {
  const auto total_mib = [](size_t memory_mib, int workers_on_device) {
    const auto engine = Create({.memory_bytes = memory_mib << 20},
                               {.memory_utilization = 1, .workers_on_device = workers_on_device});
    EXPECT_TRUE(engine.ok()) << engine.status();
    size_t total = 0;
    for (const auto& use : (*engine)->description().memory()) total += use.size_bytes();
    return static_cast<double>(total) / (1 << 20);
  };
  const double alone = total_mib(64, 1);
  EXPECT_LE(alone, 64);
  EXPECT_GT(alone, 60);
  EXPECT_EQ(total_mib(128, 2), alone);
}

TEST(EngineCreateTest, WarmUpRefusesLogitsThatAreNotFinite) {
  const auto engine = Create({.gives_nan = true});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const absl::Status status = (*engine)->WarmUp();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite"));
}

}  // namespace
}  // namespace weightless::worker
