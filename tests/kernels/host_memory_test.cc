#include "kernels/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace weightless::kernels {
namespace {

using Range = std::pair<const std::byte*, const std::byte*>;

// The race is short: the thread sanitizer sees it every time, the addresses only now and then.
TEST(HostMemoryTest, BuffersOfSeveralThreadsDoNotOverlap) {
  constexpr size_t kNumThreads = 4, kNumBuffers = 10'000, kBytes = 4'096;
  HostMemory memory;
  std::vector<std::vector<std::unique_ptr<Buffer>>> buffers(kNumThreads);
  std::vector<std::thread> threads;
  for (auto& own : buffers) {
    threads.emplace_back([&memory, &own] {
      for (size_t i = 0; i < kNumBuffers; ++i) own.push_back(memory.Allocate(kBytes));
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(memory.allocated_bytes(), kNumThreads * kNumBuffers * kBytes);
  std::vector<Range> ranges;
  for (const auto& own : buffers) {
    for (const auto& buffer : own) {
      ASSERT_NE(buffer, nullptr);
      const auto* begin = static_cast<const std::byte*>(buffer->data());
      ranges.emplace_back(begin, begin + buffer->size_bytes());
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first) << i;
}

TEST(HostMemoryTest, RefusesMoreThanTheMachineHas) {
  HostMemory memory;
  EXPECT_EQ(memory.Allocate(HostMemoryBytes() + 1), nullptr);
  EXPECT_EQ(memory.allocated_bytes(), 0u);
  const size_t half = HostMemoryBytes() / 2 + 4096;
  const auto first = memory.Allocate(half);  // never touched
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(memory.Allocate(half), nullptr);
  EXPECT_NE(memory.Allocate(4096), nullptr);
}

}  // namespace
}  // namespace weightless::kernels
