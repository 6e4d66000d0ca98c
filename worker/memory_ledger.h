// Device memory by use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weightless::worker {

// In bytes, by kind as in proto MemoryUse. Every allocation of the engine is in one; what a
// backend's ops keep for themselves is not here (Backend::workspace_bytes).
class MemoryLedger {
 public:
  void Add(std::string_view kind, size_t size_bytes) {
    const auto it = std::find_if(uses_.begin(), uses_.end(),
                                 [kind](const auto& use) { return use.first == kind; });
    if (it != uses_.end()) {
      it->second += size_bytes;
    } else {
      uses_.emplace_back(kind, size_bytes);
    }
  }

  size_t total() const {
    size_t total = 0;
    for (const auto& [kind, size_bytes] : uses_) total += size_bytes;
    return total;
  }

  // In the order the kinds were first named.
  const std::vector<std::pair<std::string, size_t>>& uses() const { return uses_; }

 private:
  std::vector<std::pair<std::string, size_t>> uses_;
};

}  // namespace weightless::worker
