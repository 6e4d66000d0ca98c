// config.json and generation_config.json over arbitrary bytes.
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "model/config.h"

using namespace weightless::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = ParseConfigJson(text, "fuzz");
  if (!config.ok()) return 0;
  CHECK(!config->layers.empty() && config->vocab_size > 0 && config->attention_scale > 0);
  for (const LayerConfig& layer : config->layers) {
    CHECK(layer.num_heads % layer.num_kv_heads == 0 && layer.head_dim % 16 == 0);
    CHECK(layer.rope_theta > 0 && layer.rope_factor > 0);
    CHECK(layer.type == LayerType::kFull || config->sliding_window > 0);
  }
  const size_t num_stops = config->eos_token_ids.size();
  CHECK(MergeGenerationConfig(text, "fuzz", *config).ok());
  CHECK(config->eos_token_ids.size() == num_stops);
  return 0;
}
