// Another kind of weights than dense, which needs nothing of the engine.
#include "worker/weight_kind.h"

#include <gtest/gtest.h>

#include "common/concat.h"
#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

// W = s W0 with s = 2 and W0 = W / 2, which is exact: the projections are made from the two factors
// as they are packed. Keeps the embedding dense.
class ScaledWeights : public WeightKind {
 public:
  void Describe(proto::Weights& weights) const override {
    weights.set_mode("precompute");
    weights.set_num_bands(12);
    weights.set_w0_encoding("bf16");
  }

  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> Load(MatrixRole role, size_t layer_idx,
                                                              WeightReader& reader) override {
    if (role != MatrixRole::kDown) return DenseWeights().Load(role, layer_idx, reader);
    const std::string name = Concat("layers.", layer_idx, ".mlp.down_proj.weight");
    const model::Tensor& tensor = reader.Tensor(name);
    const kernels::DenseRows rows{
        .n = tensor.num_rows(),
        .k = tensor.row_size(),
        .read = [&tensor](int64_t first, int64_t count, float* out) {
          std::vector<float> w0(static_cast<size_t>(count * tensor.row_size()));
          model::ReadRows(tensor, first, count, w0.data());
          for (float& value : w0) value *= 0.5f;
          for (const float value : w0) *out++ = 2 * value;
        }};
    auto weight = reader.PackRows({&rows, 1}, name, "materialised");
    reader.HasRead(tensor);
    return weight;
  }
};

TEST(WeightKindTest, ArrivesWithLedgerDescriptionAndIdentityOfItsOwn) {
  const EngineOptions options{.num_slots = 8, .num_full_blocks = 8, .num_sliding_blocks = 8};
  const auto checkpoint = model::Checkpoint::Open(WEIGHTLESS_SOURCE_DIR "/models/tiny-gemma3");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto make_backend = [] { return kernels::MakeCpuBackend({.num_threads = 2}); };
  const auto dense = Engine::Create(**checkpoint, make_backend(), options);
  ScaledWeights kind;
  double progress = 0;
  const auto scaled = Engine::Create(**checkpoint, kind, make_backend(), options,
                                     [&progress](double fraction) { progress = fraction; });
  ASSERT_TRUE(dense.ok() && scaled.ok());
  EXPECT_DOUBLE_EQ(progress, 1);

  const proto::Description about = (*scaled)->DescribeNow();
  EXPECT_EQ(about.weights().mode(), "precompute");
  EXPECT_EQ(about.weights().dtype(), "bfloat16");
  EXPECT_EQ(about.weights().num_bands(), 12u);
  EXPECT_EQ(about.model().weight_identity(),
            (*dense)->description().model().weight_identity() + "-precompute");
  uint64_t total = 0, materialised = 0;
  for (const proto::MemoryUse& use : about.memory()) {
    total += use.size_bytes();
    if (use.kind() == "materialised") materialised = use.size_bytes();
  }
  EXPECT_GT(materialised, 0u);
  EXPECT_EQ(total, about.device().memory_allocated_bytes());

  const std::vector<int32_t> prompt = ArbitraryPrompt(70, 1);
  EXPECT_EQ(GenerateAlone(**scaled, prompt, 8), GenerateAlone(**dense, prompt, 8));
}

}  // namespace
}  // namespace weightless::worker
