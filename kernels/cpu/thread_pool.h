// Workers for loops of tens of microseconds: they spin for a short while after a loop and sleep
// when none follows, so several processes may share the cores.
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
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(thread) once on every thread; returns when all have returned. With one thread a plain
  // call.
  template <typename Body>
  void Run(Body&& body) {
    if (workers_.empty()) return body(0);
    RunOnAll([](void* arg, int thread) { (*static_cast<std::decay_t<Body>*>(arg))(thread); },
             &body);
  }

  // body(begin, end, thread) over contiguous parts of [0, size), never more of them than
  // size / grain.
  template <typename Body>
  void ForRange(int64_t size, int64_t grain, Body&& body) {
    const int64_t parts = size / grain < num_threads() ? size / grain : num_threads();
    if (parts <= 1) {
      if (size > 0) body(int64_t{0}, size, 0);
      return;
    }
    Run([&](int thread) {
      if (thread < parts) body(size * thread / parts, size * (thread + 1) / parts, thread);
    });
  }

 private:
  using Function = void (*)(void* arg, int thread);
  void RunOnAll(Function function, void* arg);
  void Work(int thread);

  // One loop: written by the owner before it advances loop_, read by workers after they see it.
  Function function_ = nullptr;
  void* arg_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> loop_{0};
  alignas(64) std::atomic<uint32_t> num_running_{0};
  std::vector<std::thread> workers_;
};

}  // namespace weightless::kernels
