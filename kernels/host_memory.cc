#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>

namespace weightless::kernels {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegionBytes = size_t{256} << 20;  // address space; memory only where touched

constexpr size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

// A mapping that begins at a huge page, handed out front to back.
class HostMemory::Region {
 public:
  // Null when the system refuses.
  static std::shared_ptr<Region> Map(size_t size_bytes) {
    const size_t mapped_bytes = size_bytes + kHugePage;
    void* mapped =
        mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    return std::make_shared<Region>(mapped, mapped_bytes, size_bytes);
  }

  Region(void* mapped, size_t mapped_bytes, size_t size_bytes)
      : mapped_(mapped), mapped_bytes_(mapped_bytes), left_bytes_(size_bytes) {
    next_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(mapped), kHugePage));
    madvise(next_, size_bytes, MADV_HUGEPAGE);  // only a hint
  }
  ~Region() { munmap(mapped_, mapped_bytes_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // The next `size_bytes`, whole pages; null when fewer are left.
  std::byte* Cut(size_t size_bytes) {
    if (size_bytes > left_bytes_) return nullptr;
    left_bytes_ -= size_bytes;
    return std::exchange(next_, next_ + size_bytes);
  }

 private:
  void* const mapped_;
  const size_t mapped_bytes_;
  std::byte* next_ = nullptr;
  size_t left_bytes_;
};

namespace {

class HostBuffer final : public Buffer {
 public:
  HostBuffer(void* data, size_t size_bytes, std::shared_ptr<HostMemory::Region> region,
             std::atomic<size_t>& allocated_bytes)
      : region_(std::move(region)), allocated_bytes_(allocated_bytes) {
    data_ = data;
    size_bytes_ = size_bytes;
    allocated_bytes_ += size_bytes_;
  }
  ~HostBuffer() override {
    if (size_bytes_ > 0) madvise(data_, RoundUp(size_bytes_, kPage), MADV_DONTNEED);
    allocated_bytes_ -= size_bytes_;
  }

 private:
  const std::shared_ptr<HostMemory::Region> region_;
  std::atomic<size_t>& allocated_bytes_;
};

}  // namespace

std::unique_ptr<Buffer> HostMemory::Allocate(size_t size_bytes) {
  const size_t limit = HostMemoryBytes();
  const std::lock_guard lock(mutex_);
  if (size_bytes > limit || allocated_bytes_ > limit - size_bytes) return nullptr;
  const size_t cut_bytes = RoundUp(size_bytes, kPage);
  std::shared_ptr<Region> region = region_;
  std::byte* data = region != nullptr ? region->Cut(cut_bytes) : nullptr;
  if (data == nullptr) {
    region = Region::Map(std::max(cut_bytes, kRegionBytes));
    if (region == nullptr) return nullptr;
    data = region->Cut(cut_bytes);
    if (cut_bytes < kRegionBytes) region_ = region;  // the rest of the old one stays unused
  }
  return std::make_unique<HostBuffer>(data, size_bytes, std::move(region), allocated_bytes_);
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
