#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "common/check.h"

namespace weightless::kernels {
namespace {

constexpr std::chrono::microseconds kSpin{40};

// Waits until `value` is no longer `old`.
void WaitWhileEqual(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

int DefaultNumThreads() {
  cpu_set_t set;
  int count = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  std::ifstream limit("/sys/fs/cgroup/cpu.max");  // "max 100000" or "150000 100000"
  int64_t quota_us = 0;
  int64_t period_us = 0;
  if (limit >> quota_us >> period_us && quota_us > 0 && period_us > 0) {
    const int64_t cores = std::max<int64_t>(1, quota_us / period_us);
    count = static_cast<int>(std::min<int64_t>(count, cores));
  }
  return count;
}

// Delegates, so that the destructor ends the threads that run when one more cannot be made.
ThreadPool::ThreadPool(int num_threads) : ThreadPool() {
  CHECK(num_threads >= 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { Work(thread); });
    pthread_setname_np(workers_.back().native_handle(),
                       ("kernel-" + std::to_string(thread)).c_str());
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(Function function, const void* arg, int64_t num_chunks) {
  const uint32_t loop = loop_.load(std::memory_order_relaxed) + 1;
  const auto chunks = static_cast<uint32_t>(num_chunks);
  function_.store(function, std::memory_order_relaxed);
  arg_.store(arg, std::memory_order_relaxed);
  num_chunks_.store(chunks, std::memory_order_relaxed);
  num_unfinished_.store(chunks, std::memory_order_relaxed);
  untaken_.store(uint64_t{loop} << 32 | chunks, std::memory_order_release);
  loop_.store(loop, std::memory_order_seq_cst);
  loop_.notify_all();
  TakeChunks(loop, 0);
  for (uint32_t left = num_unfinished_.load(std::memory_order_acquire); left != 0;
       left = num_unfinished_.load(std::memory_order_acquire)) {
    WaitWhileEqual(num_unfinished_, left);
  }
}

void ThreadPool::TakeChunks(uint32_t loop, int thread) {
  uint64_t untaken = untaken_.load(std::memory_order_acquire);
  while (untaken >> 32 == loop && static_cast<uint32_t>(untaken) > 0) {
    // Valid if the exchange succeeds: the loop cannot end while a chunk of it is untaken.
    const Function function = function_.load(std::memory_order_relaxed);
    const void* arg = arg_.load(std::memory_order_relaxed);
    const uint32_t num_chunks = num_chunks_.load(std::memory_order_relaxed);
    if (!untaken_.compare_exchange_weak(untaken, untaken - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      continue;
    }
    function(arg, int64_t{num_chunks} - static_cast<uint32_t>(untaken), thread);
    if (num_unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_unfinished_.notify_all();
    untaken = untaken_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitWhileEqual(loop_, seen);
    // In this order: who sees the loop number that the destructor made sees `stop_`, too.
    seen = loop_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    TakeChunks(seen, thread);
  }
}

}  // namespace weightless::kernels
