#include "tools/read_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "common/check.h"

namespace weightless::tools {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 30;
constexpr size_t kLineWords = 8;            // a cache line
constexpr size_t kStreams = 4;              // of a thread: one alone reads a quarter less
constexpr size_t kAhead = 32 * kLineWords;  // prefetched in each

uint64_t Sum(std::span<const uint64_t> words) {
  const size_t part = words.size() / kStreams / kLineWords * kLineWords;
  uint64_t sums[kLineWords] = {};
  for (size_t i = 0; i < part; i += kLineWords) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* line = words.data() + stream * part + i;
      __builtin_prefetch(line + kAhead);
      for (size_t j = 0; j < kLineWords; ++j) sums[j] += line[j];
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// In huge pages where the kernel has them: a walk of page tables would be measured otherwise.
std::span<uint64_t> MapBuffer() {
  void* memory =
      mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  madvise(memory, kBufferBytes, MADV_HUGEPAGE);
  return {static_cast<uint64_t*>(memory), kBufferBytes / sizeof(uint64_t)};
}

}  // namespace

ReadMeter::ReadMeter(int num_threads) : num_threads_(num_threads), words_(MapBuffer()) {
  std::fill(words_.begin(), words_.end(), 1);
}

ReadMeter::~ReadMeter() { munmap(words_.data(), kBufferBytes); }

double ReadMeter::Measure() {
  const auto num_threads = static_cast<size_t>(num_threads_);
  const size_t share = words_.size() / num_threads;
  std::vector<uint64_t> sums(num_threads);
  const auto work = [&](size_t i) { sums[i] = Sum(words_.subspan(i * share, share)); };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (size_t i = 1; i < num_threads; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (const uint64_t sum : sums) sum_ += sum;
  return static_cast<double>(share * num_threads * sizeof(uint64_t)) / took.count();
}

}  // namespace weightless::tools
