// What a worker says about itself, as metrics show it. common/ knows no protocol, so the conversion
// takes any message with the fields of proto Description.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/concat.h"

namespace weightless {

struct WorkerFacts {
  std::string version, model, mode, w0_encoding, dtype, device, device_name, numerics;
  uint64_t rank = 0, num_bands = 0;
  uint64_t num_parameters = 0;
  uint64_t block_size = 0, num_full_blocks = 0, num_sliding_blocks = 0, sliding_window = 0;
  uint64_t num_slots = 0, max_context = 0;
  uint64_t memory_total_bytes = 0;  // of the device
  // That the worker has taken, as the device's allocator counts.
  uint64_t memory_allocated_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> memory;  // the ledger: class, bytes
};

// Equal for workers that are to be compared as one: "tiny-gemma3 dense bfloat16 cpu",
// "gemma-3-1b on-the-fly r256 g4 int4 bfloat16 cuda".
inline std::string VariantName(const WorkerFacts& facts) {
  std::string name = Concat(facts.model, " ", facts.mode);
  if (facts.rank > 0) name += Concat(" r", facts.rank);
  if (facts.num_bands > 0) name += Concat(" g", facts.num_bands);
  if (!facts.w0_encoding.empty()) name += Concat(" ", facts.w0_encoding);
  return Concat(name, " ", facts.dtype, " ", facts.device);
}

template <typename Description>
WorkerFacts FactsOf(const Description& description) {
  // A worker's text becomes label values: not without end.
  constexpr size_t kMaxText = 128;
  constexpr int kMaxClasses = 64;
  const auto text = [](const std::string& value) { return value.substr(0, kMaxText); };
  WorkerFacts facts{
      .version = text(description.worker_version()),
      .model = text(description.model().name()),
      .mode = text(description.weights().mode()),
      .w0_encoding = text(description.weights().w0_encoding()),
      .dtype = text(description.weights().dtype()),
      .device = text(description.device().kind()),
      .device_name = text(description.device().name()),
      .numerics = text(description.device().numerics()),
      .rank = description.weights().rank(),
      .num_bands = description.weights().num_bands(),
      .num_parameters = description.model().num_parameters(),
      .block_size = description.geometry().block_size(),
      .num_full_blocks = description.geometry().num_full_blocks(),
      .num_sliding_blocks = description.geometry().num_sliding_blocks(),
      .sliding_window = description.geometry().sliding_window(),
      .num_slots = description.geometry().num_slots(),
      .max_context = description.geometry().max_context(),
      .memory_total_bytes = description.device().memory_total_bytes(),
      .memory_allocated_bytes = description.device().memory_allocated_bytes(),
      .memory = {},
  };
  for (const auto& use : description.memory()) {
    if (facts.memory.size() >= kMaxClasses) break;
    facts.memory.emplace_back(text(use.kind()), use.size_bytes());
  }
  return facts;
}

}  // namespace weightless
