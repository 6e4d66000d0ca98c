#include "worker/describe.h"

#include <string>

namespace weightless::worker {

proto::Description Describe(const model::Checkpoint& checkpoint, const WeightKind& kind,
                            const kernels::Backend& backend, const PlanLimits& limits) {
  const model::ModelConfig& config = checkpoint.config();
  proto::Description description;
  description.set_protocol_version(proto::PROTOCOL_VERSION_CURRENT);
  description.set_worker_version(WEIGHTLESS_VERSION);

  proto::ModelCard& card = *description.mutable_model();
  card.set_name(checkpoint.name());
  card.set_architecture(config.architecture);
  card.set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  card.set_num_layers(static_cast<uint32_t>(config.layers.size()));
  card.mutable_eos_token_ids()->Add(config.eos_token_ids.begin(), config.eos_token_ids.end());
  uint64_t num_parameters = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    num_parameters += static_cast<uint64_t>(tensor.num_rows() * tensor.row_size());
  }
  card.set_num_parameters(num_parameters);

  proto::Geometry& geometry = *description.mutable_geometry();
  geometry.set_block_size(kernels::kBlockSize);
  geometry.set_num_full_blocks(static_cast<uint32_t>(limits.num_full_blocks));
  geometry.set_num_sliding_blocks(static_cast<uint32_t>(limits.num_sliding_blocks));
  geometry.set_sliding_window(static_cast<uint32_t>(limits.sliding_window));
  geometry.set_num_slots(static_cast<uint32_t>(limits.num_slots));
  geometry.set_max_context(static_cast<uint32_t>(limits.max_context));
  geometry.set_max_step_tokens(static_cast<uint32_t>(limits.max_step_tokens));

  proto::Device& device = *description.mutable_device();
  device.set_kind(backend.device_kind());
  device.set_name(backend.device_name());
  device.set_numerics(backend.numerics());
  device.set_memory_total_bytes(backend.memory_total_bytes());

  kind.Describe(*description.mutable_weights());
  description.mutable_weights()->set_dtype(std::string(Name(backend.activation_type())));
  return description;
}

void AddMemoryLedger(const MemoryLedger& ledger, proto::Description& description) {
  for (const auto& [kind, size_bytes] : ledger.uses()) {
    proto::MemoryUse& use = *description.add_memory();
    use.set_kind(kind);
    use.set_size_bytes(size_bytes);
  }
}

void AddWorkspace(const kernels::Backend& backend, proto::Description& description) {
  proto::MemoryUse& use = *description.add_memory();
  use.set_kind("workspace");
  use.set_size_bytes(backend.workspace_bytes());
  description.mutable_device()->set_memory_allocated_bytes(backend.memory_allocated_bytes());
}

}  // namespace weightless::worker
