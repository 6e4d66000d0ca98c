#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace weightless::kernels {
namespace {

TEST(ThreadPoolTest, CoversEveryItemOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    for (const int64_t size : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 100}) {
        std::vector<int> hits(static_cast<size_t>(size));
        pool.ForRange(size, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LT(thread, num_threads);
          EXPECT_GE(end - begin, std::min(size, grain));
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), int64_t{0}), size);
        EXPECT_TRUE(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; }));
      }
    }
  }
}

TEST(ThreadPoolTest, ManyLoopsInARowSeeEachOthersResults) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 1);
  for (int loop = 0; loop < 20'000; ++loop) {
    pool.ForRange(64, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++values[static_cast<size_t>(i)];
    });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 20'001);
}

// Fails by never ending: a late thread took the destructor's loop number for one it had seen.
TEST(ThreadPoolTest, EndsWhileAThreadIsLateForTheLastLoop) {
  for (int round = 0; round < 3000; ++round) {
    ThreadPool pool(4);
    pool.ForRange(64, 1, [](int64_t, int64_t, int) {});
  }
}

TEST(ThreadPoolTest, TheDefaultIsAtLeastOneThread) { EXPECT_GE(DefaultNumThreads(), 1); }

}  // namespace
}  // namespace weightless::kernels
