#include "kernels/rope_table.h"
#include "tests/kernels/kernel_testing.h"

namespace weightless::kernels {
namespace {

using NormRopeTest = KernelTest;
INSTANTIATE_TEST_SUITE_P(Backends, NormRopeTest, testing::ValuesIn(kBackendCases), CaseName);

TEST_P(NormRopeTest, RmsNormAgreesWithTheReference) {
  for (const int64_t size : {1, 15, 16, 17, 192, 640, 1152, 5376}) {
    for (const float scale : {1e-6f, 1.0f, 1e6f, 1e20f}) {
      SCOPED_TRACE(testing::Message() << size << " values of " << scale);
      Matrix x = Matrix::Random(DType::kF32, 37, size, 1, scale);
      Matrix weight = Matrix::Random(DType::kF32, 1, size, 2);
      for (const DType type : {DType::kF32, GetParam().type}) {
        Matrix out(type, 37, size);
        Matrix expected(type, 37, size);
        backend_->RmsNorm(x.view(), weight.view(), 1e-6f, out.view());
        reference_->RmsNorm(x.view(), weight.view(), 1e-6f, expected.view());
        EXPECT_LT(RelativeError(out, expected), type == DType::kF32 ? 1e-6 : 3e-3);
        out.ExpectGuardsIntact();
      }
    }
  }
}

TEST_P(NormRopeTest, RmsNormAddAgreesWithTheReference) {
  for (const int64_t size : {1, 17, 640}) {
    Matrix y = Matrix::Random(DType::kF32, 40, size, 1, 30);
    Matrix weight = Matrix::Random(DType::kF32, 1, size, 2);
    Matrix x = Matrix::Random(DType::kF32, 40, size, 3);
    Matrix expected = x;
    backend_->RmsNormAdd(y.view(), weight.view(), 1e-6f, x.view());
    reference_->RmsNormAdd(y.view(), weight.view(), 1e-6f, expected.view());
    EXPECT_LT(RelativeError(x, expected), 1e-6);
    x.ExpectGuardsIntact();
  }
}

TEST_P(NormRopeTest, ARowHasTheSameBitsWhateverRowsAreBesideIt) {
  Matrix x = Matrix::Random(DType::kF32, 100, 650, 1);
  Matrix weight = Matrix::Random(DType::kF32, 1, 650, 2);
  Matrix all(GetParam().type, 100, 650);
  backend_->RmsNorm(x.view(), weight.view(), 1e-6f, all.view());
  Matrix one_x = x.Slice(57, 1);
  Matrix one(GetParam().type, 1, 650);
  backend_->RmsNorm(one_x.view(), weight.view(), 1e-6f, one.view());
  EXPECT_TRUE(one.SameBits(all.Slice(57, 1)));
}

// K and V are read back through attention (attention_test.cc); here, the queries.
TEST_P(NormRopeTest, QueriesAgreeWithTheReferenceAtAnyPosition) {
  for (const float base : {1e4f, 1e6f}) {
    for (const int head_dim : {16, 48, 64, 256}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " base " << base);
      const AttentionShape shape{.num_heads = 4, .num_kv_heads = 2, .head_dim = head_dim};
      HostRopeTable table = MakeRopeTable({.head_dim = head_dim, .base = base}, 32769);
      Matrix q_norm = Matrix::Random(DType::kF32, 1, head_dim, 1);
      Matrix k_norm = Matrix::Random(DType::kF32, 1, head_dim, 2);
      const NormRopeInputs in{
          .q_norm = q_norm.view(),
          .k_norm = k_norm.view(),
          .rope = {.cos = {table.cos.data(), DType::kF32, 32769, head_dim / 2},
                   .sin = {table.sin.data(), DType::kF32, 32769, head_dim / 2}}};
      const std::vector<int32_t> positions = {0, 1, 511, 512, 32767, 32768};
      const std::vector<int32_t> slots(6, -1);
      const PoolBatch batch{
          .num_tokens = 6, .positions = positions.data(), .slot_mapping = slots.data()};
      Matrix qkv = Matrix::Random(DType::kF32, 6, 8 * head_dim, 3, 5);
      Matrix q(GetParam().type, 6, 4 * head_dim);
      Matrix expected(GetParam().type, 6, 4 * head_dim);
      const KvLayer layer{.num_kv_heads = 2, .head_dim = head_dim};
      backend_->NormRopeStoreKv(qkv.view(), in, shape, batch, layer, q.view());
      reference_->NormRopeStoreKv(qkv.view(), in, shape, batch, layer, expected.view());
      EXPECT_LT(RelativeError(q, expected), is_bf16() ? 3e-3 : 1e-5);
      q.ExpectGuardsIntact();
    }
  }
}

TEST(RopeTableTest, FollowsTheFloat32Recipe) {
  const HostRopeTable table = MakeRopeTable({.head_dim = 256, .base = 1e6f, .factor = 8}, 1000);
  ASSERT_EQ(table.cos.size(), size_t{1000 * 128});
  for (const size_t i : {size_t{0}, size_t{1}, size_t{64}, size_t{127}}) {
    const float w = 1.0f / std::pow(1e6f, static_cast<float>(2 * i) / 256.0f) / 8.0f;
    const float angle = w * 999.0f;
    EXPECT_EQ(table.cos[999 * 128 + i], std::cos(angle));
    EXPECT_EQ(table.sin[999 * 128 + i], std::sin(angle));
  }
  EXPECT_EQ(table.cos[5], 1);
  EXPECT_EQ(table.sin[5], 0);
}

}  // namespace
}  // namespace weightless::kernels
