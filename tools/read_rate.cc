#include "tools/read_rate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace weightless::tools {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 30;
constexpr int kNumPasses = 5;
constexpr size_t kUnroll = 32;  // words added side by side, so that additions do not wait

uint64_t Sum(std::span<const uint64_t> words) {
  uint64_t sums[kUnroll] = {};
  for (size_t i = 0; i + kUnroll <= words.size(); i += kUnroll) {
    for (size_t j = 0; j < kUnroll; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// Calls work(i) for each thread i at once; the seconds until all are done.
template <typename Work>
double TimeThreads(int num_threads, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double MeasureReadRate(int num_threads) {
  std::vector<uint64_t> words(kBufferBytes / sizeof(uint64_t), 1);
  const size_t share = words.size() / static_cast<size_t>(num_threads);
  std::atomic<uint64_t> total = 0;  // keeps the additions from being dropped
  double best_s = 1e30;
  for (int pass = 0; pass < kNumPasses; ++pass) {
    best_s = std::min(
        best_s, TimeThreads(num_threads, [&](int thread_idx) {
          total += Sum(std::span(words).subspan(static_cast<size_t>(thread_idx) * share, share));
        }));
  }
  const size_t read_bytes = share * static_cast<size_t>(num_threads) * sizeof(uint64_t);
  return total > 0 ? static_cast<double>(read_bytes) / best_s : 0;
}

}  // namespace weightless::tools
