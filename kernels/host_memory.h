// Host memory as a backend's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "kernels/backend.h"

namespace weightless::kernels {

// Buffers of one backend, side by side in large regions of huge pages: the matrices of a layer are
// one to five MB, too small to lie in huge pages each on its own, and a walk of page tables in
// front of every 4 KB costs a decode step up to a tenth of its time. Thread-safe: kernel threads
// take their scratch here.
class HostMemory {
 public:
  // Zeroed, page aligned; pages are touched on first use and given back when the buffer goes. Null
  // when the system refuses, or when the buffers that live would take more than HostMemoryBytes().
  // This outlives the buffers.
  std::unique_ptr<Buffer> Allocate(size_t size_bytes);

  // Of the buffers that live.
  size_t allocated_bytes() const { return allocated_bytes_; }

  class Region;

 private:
  std::mutex mutex_;                // of region_
  std::shared_ptr<Region> region_;  // small buffers are cut from it; shared with those
  std::atomic<size_t> allocated_bytes_ = 0;
};

// What this process may use: the machine's memory, or the limit of its control group if smaller.
size_t HostMemoryBytes();

}  // namespace weightless::kernels
