// Host memory as a backend's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "kernels/backend.h"

namespace weightless::kernels {

// Zeroed, page aligned, in huge pages where the system gives them; pages are touched on first use.
// Null when the system refuses, or when size_bytes is more than HostMemoryBytes(). `allocated`,
// when given, outlives the buffer and counts its bytes as long as it lives.
std::unique_ptr<Buffer> AllocateHost(size_t size_bytes, std::atomic<size_t>* allocated = nullptr);

// What this process may use: the machine's memory, or the limit of its control group if smaller.
size_t HostMemoryBytes();

}  // namespace weightless::kernels
