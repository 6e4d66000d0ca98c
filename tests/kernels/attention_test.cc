#include "kernels/cpu/attention_plan.h"
#include "tests/kernels/attention_testing.h"

namespace weightless::kernels {
namespace {

using AttentionTest = KernelTest;
INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, testing::ValuesIn(kBackendCases), CaseName);

AttentionShape ShapeOf(int num_heads, int num_kv_heads, int head_dim, int window = 0) {
  return {.num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .window = window,
          .scale = 1 / std::sqrt(static_cast<float>(head_dim))};
}

double Limit(DType type) { return type == DType::kBF16 ? 4e-3 : 1e-5; }

TEST_P(AttentionTest, AgreesWithTheReferenceForAnyGroupingAndHeadSize) {
  for (const int head_dim : {16, 64, 80, 128, 256}) {
    for (const auto& [heads, kv_heads] :
         std::vector<std::pair<int, int>>{{1, 1}, {4, 2}, {4, 1}, {8, 1}, {3, 3}}) {
      SCOPED_TRACE(testing::Message() << heads << "/" << kv_heads << " heads of " << head_dim);
      const AttentionShape shape = ShapeOf(heads, kv_heads, head_dim);
      AttentionRun run(*backend_, shape, 2, 150, 1);
      AttentionRun expected(*reference_, shape, 2, 150, 2);
      for (const auto& step : std::vector<std::vector<StepRows>>{
               {{0, 0, 1}, {1, 0, 70}}, {{0, 1, 130}, {1, 70, 71}}, {{0, 130, 150}}}) {
        EXPECT_LT(RelativeError(run.Step(step), expected.Step(step)), Limit(GetParam().type));
      }
    }
  }
}

TEST_P(AttentionTest, SeesExactlyItsWindow) {
  for (const int window : {1, 2, 63, 64, 65, 100, 512}) {
    const AttentionShape shape = ShapeOf(2, 1, 32, window);
    AttentionRun run(*backend_, shape, 1, 600, 1);
    AttentionRun expected(*reference_, shape, 1, 600, 2);
    run.ScaleQueries(0.1f);  // every key counts
    expected.ScaleQueries(0.1f);
    const Matrix out = run.Step({{0, 0, 600}});
    const Matrix expected_out = expected.Step({{0, 0, 600}});
    for (const int row : {0, 1, window - 1, window, window + 1, 599}) {
      if (row < 0 || row >= 600) continue;
      EXPECT_LT(RelativeError(out.Slice(row, 1), expected_out.Slice(row, 1)),
                Limit(GetParam().type) * 2)
          << "row " << row << " window " << window;
    }
  }
}

TEST_P(AttentionTest, ChunksAndSingleTokensGiveTheBitsOfTheWhole) {
  if (GetParam().family == KernelFamily::kReference) GTEST_SKIP() << "too slow to repeat";
  for (const int window : {0, 64, 300}) {
    const AttentionShape shape = ShapeOf(4, 1, 64, window);
    constexpr int kLen = 700;
    AttentionRun whole_run(*backend_, shape, 1, kLen, 1);
    const Matrix whole = whole_run.Step({{0, 0, kLen}});
    for (const int chunk : {1, 7, 64, 200, 257}) {
      AttentionRun run(*backend_, shape, 1, kLen, 2);
      for (int begin = 0; begin < kLen; begin += chunk) {
        const int end = std::min(kLen, begin + chunk);
        const Matrix out = run.Step({{0, begin, end}});
        ASSERT_TRUE(out.SameBits(whole.Slice(begin, end - begin)))
            << "rows " << begin << " to " << end << ", window " << window;
      }
    }
  }
}

TEST_P(AttentionTest, OtherSequencesAndBlocksDoNotChangeTheBits) {
  const AttentionShape shape = ShapeOf(4, 2, 64, 200);
  AttentionRun alone(*backend_, shape, 8, 500, 1);
  alone.Step({{3, 0, 450}});
  const Matrix expected = alone.Step({{3, 450, 451}});
  AttentionRun together(*backend_, shape, 8, 500, 99);
  std::vector<StepRows> prompts;
  std::vector<StepRows> decodes;
  for (int s = 0; s < 8; ++s) {
    const int len = s == 3 ? 450 : 17 + 60 * s;
    prompts.push_back({s, 0, len});
    decodes.push_back({s, len, len + 1});
  }
  together.Step(prompts);
  EXPECT_TRUE(together.Step(decodes).Slice(3, 1).SameBits(expected));
}

TEST_P(AttentionTest, ThreadsDoNotChangeTheBits) {
  const BackendCase& c = GetParam();
  if (c.family == KernelFamily::kReference) GTEST_SKIP() << "one thread";
  for (const int num_threads : {1, 2, 5}) {
    const auto other =
        MakeCpuBackend({.activation_type = c.type, .family = c.family, .num_threads = num_threads});
    const AttentionShape shape = ShapeOf(4, 1, 64);
    AttentionRun run(*backend_, shape, 2, 1400, 1);
    AttentionRun other_run(*other, shape, 2, 1400, 2);
    for (const auto& step : std::vector<std::vector<StepRows>>{
             {{0, 0, 1300}, {1, 0, 5}}, {{0, 1300, 1301}}, {{0, 1301, 1303}, {1, 5, 6}}}) {
      EXPECT_TRUE(run.Step(step).SameBits(other_run.Step(step))) << num_threads << " threads";
    }
  }
}

TEST_P(AttentionTest, StaleMemoryInABlockDoesNotMatter) {
  for (const int head_dim : {16, 64}) {
    const AttentionShape shape = ShapeOf(2, 2, head_dim);
    AttentionRun clean(*backend_, shape, 1, 200, 1);
    AttentionRun stale(*backend_, shape, 1, 200, 1);
    stale.Poison();
    for (const auto& [begin, end] : std::vector<std::pair<int, int>>{
             {0, 1}, {1, 2}, {2, 37}, {37, 64}, {64, 65}, {65, 130}, {130, 131}, {131, 133}}) {
      const Matrix out = stale.Step({{0, begin, end}});
      EXPECT_TRUE(out.SameBits(clean.Step({{0, begin, end}}))) << begin << " to " << end;
    }
  }
}

TEST_P(AttentionTest, EqualScoresAverageAndADominantScoreWins) {
  const AttentionShape shape = ShapeOf(2, 1, 64);
  for (const float scale : {0.0f, 60.0f}) {
    AttentionRun run(*backend_, shape, 1, 300, 1);
    AttentionRun expected(*reference_, shape, 1, 300, 2);
    run.ScaleQueries(scale);
    expected.ScaleQueries(scale);
    EXPECT_LT(RelativeError(run.Step({{0, 0, 300}}), expected.Step({{0, 0, 300}})),
              Limit(GetParam().type));
  }
}

TEST(AttentionPlanTest, CoversEveryKeyOfEveryRowOnce) {
  const AttentionShape shape = ShapeOf(4, 2, 64, 300);
  const std::vector<int32_t> cu_seqlens = {0, 1, 101, 102};
  const std::vector<int32_t> context_lens = {1000, 500, 1};
  const PoolBatch batch{.num_tokens = 102,
                        .num_seqs = 3,
                        .max_blocks_per_seq = 16,
                        .host_cu_seqlens_q = cu_seqlens.data(),
                        .host_context_lens = context_lens.data()};
  for (const int num_threads : {1, 2, 16}) {
    AttentionPlan plan;
    PlanAttention(shape, batch, num_threads, plan);
    // (row, kv head, block) -> times covered
    std::map<std::vector<int>, int> covered;
    for (const AttentionUnit& unit : plan.units) {
      for (int r = 0; r < unit.tile.num_rows; ++r) {
        for (int b = unit.tile.first_block; b <= unit.tile.last_block; ++b) {
          ++covered[{unit.tile.first_row + r, unit.tile.kv_head, b}];
        }
      }
    }
    for (int s = 0; s < 3; ++s) {
      for (int row = cu_seqlens[static_cast<size_t>(s)];
           row < cu_seqlens[static_cast<size_t>(s) + 1]; ++row) {
        const int position =
            context_lens[static_cast<size_t>(s)] - cu_seqlens[static_cast<size_t>(s) + 1] + row;
        for (int key = std::max(0, position - 299); key <= position; ++key) {
          for (int kv_head = 0; kv_head < 2; ++kv_head) {
            ASSERT_EQ((covered[{row, kv_head, key / kBlockSize}]), 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weightless::kernels
