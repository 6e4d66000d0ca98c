// The memory ledger adds up to what the allocator has given.
#include <gtest/gtest.h>

#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

uint64_t LedgerBytes(const proto::Description& description) {
  uint64_t sum = 0;
  for (const proto::MemoryUse& use : description.memory()) sum += use.size_bytes();
  return sum;
}

class EngineMemoryTest : public testing::TestWithParam<kernels::KernelFamily> {};

TEST_P(EngineMemoryTest, EveryByteIsInTheLedger) {
  const auto engine = MakeTestEngine({.family = GetParam(), .dtype = kernels::DType::kBF16});
  const proto::Description before = engine->DescribeNow();
  EXPECT_GT(before.device().memory_allocated_bytes(), 0u);
  EXPECT_LT(before.device().memory_allocated_bytes(), before.device().memory_total_bytes());
  EXPECT_EQ(LedgerBytes(before), before.device().memory_allocated_bytes());

  Recorder recorder(*engine);
  proto::StepPlan plan;
  AddAdmit(plan, 0, {2, 100, 101});
  AddBlocks(plan, 0, 0, {0}, {0});
  AddPrefill(plan, 0, 3);
  recorder.Run(plan);  // the ops' workspace may have grown
  const proto::Description after = engine->DescribeNow();
  EXPECT_EQ(LedgerBytes(after), after.device().memory_allocated_bytes());
}

INSTANTIATE_TEST_SUITE_P(Families, EngineMemoryTest,
                         testing::Values(kernels::KernelFamily::kReference,
                                         kernels::KernelFamily::kAuto));

}  // namespace
}  // namespace weightless::worker
