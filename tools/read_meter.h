// How fast this machine reads memory: what bounds a decode step.
#pragma once

#include <cstdint>
#include <span>

namespace weightless::tools {

// Holds a buffer far larger than any cache. Owned by one thread.
class ReadMeter {
 public:
  // CHECK-fails without 1 GiB of memory.
  explicit ReadMeter(int num_threads);
  ~ReadMeter();
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;

  // Bytes per second at which the threads together read the buffer once. Other users of the
  // machine's memory change it from one moment to the next: measure right beside what it is
  // compared with, and take the same of both, median and median.
  double Measure();

 private:
  const int num_threads_;
  const std::span<uint64_t> words_;
  uint64_t sum_ = 0;  // keeps the reads from being dropped
};

}  // namespace weightless::tools
