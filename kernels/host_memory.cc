#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace weightless::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

class HostBuffer final : public Buffer {
 public:
  HostBuffer(void* data, size_t size_bytes, std::atomic<size_t>* allocated)
      : allocated_(allocated) {
    data_ = data;
    size_bytes_ = size_bytes;
    if (allocated_ != nullptr) *allocated_ += size_bytes_;
  }
  ~HostBuffer() override {
    if (data_ != nullptr) munmap(data_, size_bytes_);
    if (allocated_ != nullptr) *allocated_ -= size_bytes_;
  }

 private:
  std::atomic<size_t>* const allocated_;
};

}  // namespace

std::unique_ptr<Buffer> AllocateHost(size_t size_bytes, std::atomic<size_t>* allocated) {
  if (size_bytes == 0) return std::make_unique<HostBuffer>(nullptr, 0, allocated);
  if (size_bytes > HostMemoryBytes()) return nullptr;
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (size_bytes >= kHugePage) madvise(data, size_bytes, MADV_HUGEPAGE);  // only a hint
  return std::make_unique<HostBuffer>(data, size_bytes, allocated);
}

size_t HostMemoryBytes() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  size_t bytes = pages * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  size_t limit_bytes = 0;
  if (limit >> limit_bytes && limit_bytes > 0) bytes = std::min(bytes, limit_bytes);
  return bytes;
}

}  // namespace weightless::kernels
