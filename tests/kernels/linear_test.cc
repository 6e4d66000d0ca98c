#include "tests/kernels/kernel_testing.h"

namespace weightless::kernels {
namespace {

using LinearTest = KernelTest;
INSTANTIATE_TEST_SUITE_P(Backends, LinearTest, testing::ValuesIn(kBackendCases), CaseName);

struct Shape {
  int64_t rows, n, k;
};
// One, odd, around the edges of blocks, and the projections of the tiny and the 270M model.
constexpr Shape kShapes[] = {{1, 1, 1},      {1, 16, 2},    {2, 17, 3},      {3, 33, 31},
                             {1, 64, 64},    {5, 65, 63},   {7, 100, 129},   {13, 48, 192},
                             {12, 160, 130}, {25, 40, 640}, {61, 130, 1152}, {1, 1536, 640},
                             {33, 640, 2048}};

TEST_P(LinearTest, AgreesWithTheReference) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.n << " x " << s.k);
    const DenseRows rows = RandomRows(s.n, s.k, 7);
    const auto w = backend_->PackDense({&rows, 1});
    const auto expected_w = reference_->PackDense({&rows, 1});
    Matrix x = Matrix::Random(GetParam().type, s.rows, s.k, 1);
    Matrix out(DType::kF32, s.rows, s.n);
    Matrix again(DType::kF32, s.rows, s.n);
    Matrix expected(DType::kF32, s.rows, s.n);
    backend_->Linear(x.view(), *w, out.view());
    backend_->Linear(x.view(), *w, again.view());
    reference_->Linear(x.view(), *expected_w, expected.view());
    EXPECT_LT(RelativeError(out, expected), 1e-5);
    EXPECT_TRUE(out.SameBits(again));
    out.ExpectGuardsIntact();
  }
}

TEST_P(LinearTest, GegluAgreesWithTheReference) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.n << " x " << s.k);
    const DenseRows parts[] = {RandomRows(s.n, s.k, 3, 0.2f), RandomRows(s.n, s.k, 4, 0.2f)};
    const auto w = backend_->PackDense(parts);
    const auto expected_w = reference_->PackDense(parts);
    Matrix x = Matrix::Random(GetParam().type, s.rows, s.k, 2);
    Matrix out(GetParam().type, s.rows, s.n);
    Matrix expected(GetParam().type, s.rows, s.n);
    backend_->LinearGeglu(x.view(), *w, out.view());
    reference_->LinearGeglu(x.view(), *expected_w, expected.view());
    EXPECT_LT(RelativeError(out, expected), is_bf16() ? 3e-3 : 1e-5);
    out.ExpectGuardsIntact();
  }
}

TEST_P(LinearTest, ARowHasTheSameBitsWhateverRowsAreBesideIt) {
  constexpr int64_t kRows = 513;
  for (const int64_t k : {64, 130, 640}) {
    const DenseRows parts[] = {RandomRows(80, k, 3), RandomRows(80, k, 4)};
    const auto w = backend_->PackDense(parts);
    Matrix x = Matrix::Random(GetParam().type, kRows, k, 5);
    Matrix all(DType::kF32, kRows, 160);
    Matrix all_geglu(GetParam().type, kRows, 80);
    backend_->Linear(x.view(), *w, all.view());
    backend_->LinearGeglu(x.view(), *w, all_geglu.view());
    for (const int64_t count : {1, 2, 5, 11, 16, 33, 64}) {
      const int64_t first = (count * 37) % (kRows - count);
      Matrix some_x = x.Slice(first, count);
      Matrix some(DType::kF32, count, 160);
      Matrix some_geglu(GetParam().type, count, 80);
      backend_->Linear(some_x.view(), *w, some.view());
      backend_->LinearGeglu(some_x.view(), *w, some_geglu.view());
      EXPECT_TRUE(some.SameBits(all.Slice(first, count))) << count << " rows from " << first;
      EXPECT_TRUE(some_geglu.SameBits(all_geglu.Slice(first, count))) << count;
    }
  }
}

TEST_P(LinearTest, StackedPartsOfAnySizeKeepTheirOrder) {
  const DenseRows parts[] = {RandomRows(5, 48, 1), RandomRows(16, 48, 2), RandomRows(30, 48, 3)};
  const auto stacked = backend_->PackDense(parts);
  ASSERT_EQ(stacked->n(), 51);
  Matrix x = Matrix::Random(GetParam().type, 3, 48, 6);
  Matrix out(DType::kF32, 3, 51);
  backend_->Linear(x.view(), *stacked, out.view());
  int64_t column = 0;
  for (const DenseRows& part : parts) {
    const auto w = backend_->PackDense({&part, 1});
    Matrix alone(DType::kF32, 3, part.n);
    backend_->Linear(x.view(), *w, alone.view());
    for (int64_t i = 0; i < 3 * part.n; ++i) {
      EXPECT_EQ(alone.At(i), out.At(i / part.n * 51 + column + i % part.n));
    }
    column += part.n;
  }
}

TEST_P(LinearTest, AccumulatesInFloat32) {
  // Large terms that cancel: a bfloat16 sum would lose the small ones.
  constexpr int64_t kK = 64;
  DenseRows rows{.n = 16, .k = kK, .read = {}};
  rows.read = [](int64_t, int64_t count, float* out) {
    for (int64_t i = 0; i < count * kK; ++i) {
      const int64_t column = i % kK;
      out[i] = column == 0 ? 4096.0f : column == kK - 1 ? -4096.0f : 1.0f;
    }
  };
  const auto w = backend_->PackDense({&rows, 1});
  Matrix x(GetParam().type, 1, kK);
  for (int64_t i = 0; i < kK; ++i) x.Set(i, 1);
  Matrix out(DType::kF32, 1, 16);
  backend_->Linear(x.view(), *w, out.view());
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(out.At(i), 62);
}

TEST_P(LinearTest, EmbedGathersScaledRowsOfTheSameWeight) {
  for (const int64_t k : {1, 31, 192, 640}) {
    const DenseRows rows = RandomRows(77, k, 9);
    const auto table = backend_->PackDense({&rows, 1});
    const auto expected_table = reference_->PackDense({&rows, 1});
    const std::vector<int32_t> ids = {0, 76, 15, 16, 17, 0};
    Matrix x(DType::kF32, 6, k);
    Matrix expected(DType::kF32, 6, k);
    backend_->Embed(ids.data(), *table, 25.25f, x.view());
    reference_->Embed(ids.data(), *expected_table, 25.25f, expected.view());
    EXPECT_TRUE(x.SameBits(expected)) << k;
  }
}

TEST_P(LinearTest, GatherRowsCopiesRows) {
  Matrix x = Matrix::Random(DType::kF32, 5, 33, 1);
  const std::vector<int32_t> rows = {4, 0, 4};
  Matrix out(DType::kF32, 3, 33);
  backend_->GatherRows(x.view(), rows.data(), out.view());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(out.Slice(i, 1).SameBits(x.Slice(rows[static_cast<size_t>(i)], 1)));
  }
}

TEST_P(LinearTest, ReportsWhatItIs) {
  EXPECT_EQ(backend_->device_kind(), "cpu");
  EXPECT_FALSE(backend_->device_name().empty());
  EXPECT_EQ(backend_->activation_type(), GetParam().type);
  EXPECT_THAT(backend_->numerics(), testing::EndsWith(std::string(Name(GetParam().type))));
  EXPECT_GT(backend_->memory_total_bytes(), size_t{1} << 20);
  EXPECT_EQ(backend_->Allocate(size_t{1} << 60), nullptr);
}

TEST(MakeCpuBackendTest, AutoAlwaysFindsOne) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    const auto backend = MakeCpuBackend({.activation_type = type});
    ASSERT_NE(backend, nullptr);
    EXPECT_EQ(backend->activation_type(), type);
  }
}

}  // namespace
}  // namespace weightless::kernels
