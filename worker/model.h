// The forward pass of Gemma 3: token ids in, logits out, K and V of the tokens left in their
// blocks.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/backend.h"
#include "worker/activations.h"
#include "worker/kv_cache.h"
#include "worker/weights.h"

namespace weightless::worker {

// One step's arrays, in backend memory. The tokens of a sequence are consecutive rows; prefill
// chunks and single decode tokens differ only in how many. Decodes come first.
struct StepInputs {
  int num_tokens = 0;            // rows, of which those of inert sequences are the last
  int num_decodes = 0;           // leading rows; their ids are put in by Backend::FeedTokens
  bool only_decodes = false;     // Backend::RunDecodes
  int32_t* token_ids = nullptr;  // [num_tokens]
  kernels::PoolBatch full;       // the same tokens as the full-attention layers' pool sees them
  kernels::PoolBatch sliding;    // and the sliding layers'
  // Rows whose logits are wanted: those to draw from, then those to report on a known token.
  int num_draws = 0;
  int num_reports = 0;
  const int32_t* head_rows = nullptr;   // [num_draws + num_reports], rows of the step
  const int32_t* head_slots = nullptr;  // likewise, whose they are
  const int32_t* targets = nullptr;     // [num_reports] the known tokens
};

// Owned by the engine thread. The backend outlives it.
class Model {
 public:
  Model(Weights weights, KvCache kv_cache, Activations activations, kernels::Backend& backend)
      : weights_(std::move(weights)),
        kv_cache_(std::move(kv_cache)),
        activations_(std::move(activations)),
        backend_(backend) {}

  // Runs every layer over the step's tokens, at most the max_step_tokens of the activations.
  void Forward(const StepInputs& in);

  // f32 [num_rows, vocab_size]: logits after each of `rows`, rows of the last Forward. At most
  // kLogitRows; valid until the next call.
  kernels::TensorView Logits(const int32_t* rows, int num_rows);

  const Weights& weights() const { return weights_; }
  const Activations& activations() const { return activations_; }

 private:
  Weights weights_;
  KvCache kv_cache_;
  Activations activations_;
  kernels::Backend& backend_;
  int num_tokens_ = 0;  // of the last Forward
};

}  // namespace weightless::worker
