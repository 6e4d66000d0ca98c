// Block-addressed storage of K and V: one pool of block ids for the full-attention layers, one for
// the sliding layers. A block id names the same block in every layer of its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace weightless::worker {

struct KvBlocks {
  int64_t full = 0;
  int64_t sliding = 0;
};

struct KvDemand {
  int num_slots = 0;
  int max_length = 0;
  int max_step_tokens = 0;
};

// Bytes that `blocks` take over all layers, by pool.
struct KvBytes {
  size_t full = 0;
  size_t sliding = 0;
};
KvBytes KvSize(const model::ModelConfig& config, const kernels::Backend& backend, KvBlocks blocks);

// As many blocks as `budget_bytes` hold, at most what every slot can use: full layers a whole
// sequence each, sliding layers twice the window and a step (the second half keeps prefixes).
// kResourceExhausted when one sequence of max_length does not fit.
absl::StatusOr<KvBlocks> PlanKvBlocks(const model::ModelConfig& config,
                                      const kernels::Backend& backend, const KvDemand& demand,
                                      size_t budget_bytes);

// The backend outlives it. Memory is zeroed and, on a CPU, not touched before its first use.
class KvCache {
 public:
  // kResourceExhausted naming the pool's bytes.
  static absl::StatusOr<KvCache> Create(const model::ModelConfig& config, KvBlocks blocks,
                                        kernels::Backend& backend);

  const kernels::KvLayer& layer(size_t layer_idx) const { return layers_[layer_idx]; }

 private:
  KvCache() = default;

  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;  // by layer
  std::vector<kernels::KvLayer> layers_;
};

}  // namespace weightless::worker
