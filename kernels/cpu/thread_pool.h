// Threads for loops of tens of microseconds. A loop is cut into chunks and any thread takes the
// next one, so a thread that is not running just now (cores are shared with other processes) delays
// nobody before it has taken a chunk. Workers spin for a short while after a loop and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace weightless::kernels {

// Cores this process may run on, or the limit of its control group if smaller; at least 1.
int DefaultNumThreads();

// Owned by one thread, which takes part in every loop as thread 0.
class ThreadPool {
 public:
  // Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(begin, end, thread) over contiguous parts of [0, size) of at least `grain` items; returns
  // when all are done. A plain call when there is only one part or one thread.
  template <typename Body>
  void ForRange(int64_t size, int64_t grain, Body&& body) {
    const int64_t wanted = int64_t{kChunksPerThread} * num_threads();
    const int64_t chunks = size / grain < wanted ? size / grain : wanted;
    if (workers_.empty() || chunks <= 1) {
      if (size > 0) body(int64_t{0}, size, 0);
      return;
    }
    const auto run_chunk = [&](int64_t chunk, int thread) {
      body(size * chunk / chunks, size * (chunk + 1) / chunks, thread);
    };
    using RunChunk = std::remove_reference_t<decltype(run_chunk)>;
    Run([](const void* arg, int64_t chunk,
           int thread) { (*static_cast<const RunChunk*>(arg))(chunk, thread); },
        &run_chunk, chunks);
  }

 private:
  ThreadPool() = default;

  static constexpr int kChunksPerThread = 8;
  using Function = void (*)(const void* arg, int64_t chunk, int thread);

  void Run(Function function, const void* arg, int64_t num_chunks);
  // Takes chunks of loop `loop` while there are any.
  void TakeChunks(uint32_t loop, int thread);
  void Work(int thread);

  // The loop's number in the upper half, its untaken chunks in the lower. A chunk is taken by
  // counting down; that fails for a thread that comes late, so it never touches another loop's
  // function.
  alignas(64) std::atomic<uint64_t> untaken_{0};
  std::atomic<Function> function_{nullptr};
  std::atomic<const void*> arg_{nullptr};
  std::atomic<uint32_t> num_chunks_{0};
  alignas(64) std::atomic<uint32_t> num_unfinished_{0};
  alignas(64) std::atomic<uint32_t> loop_{0};  // what idle workers wait on
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace weightless::kernels
