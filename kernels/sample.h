// From logits to a token. Order of operations, all in float32 on the raw logits l [vocab]:
//
//   logprobs    natural-log softmax of l as it came, if asked for
//   penalties   every token of the sequence: l > 0 ? l / repetition : l * repetition; then output
//               tokens: l -= frequency * count + presence
//   bias        l[token] += bias
//   forbidden   l[token] = -inf for every stop token while fewer than min_tokens are there
//   greedy      temperature 0: argmax, smallest id on ties. Otherwise:
//   weights     e^((l - max) / temperature)
//   top_k       keep the k largest, ties at the border by smaller id
//   top_p       keep the smallest prefix of the falling order whose share of what top_k left is at
//               least top_p (the crossing token is kept)
//   min_p       drop what weighs less than min_p times the largest
//   draw        walk what is kept by rising id until the weights pass uniform * their sum
//
// `uniform` is counter based: Philox 4x32-10 of (seed, position of the token to be drawn), so it
// depends on nothing else. Sums run in a fixed order: the same row gives the same token whatever
// else is in the batch. Penalties and bias saturate at the largest float. Bias and stop ids outside
// the vocabulary have no effect; with every token forbidden the result is token 0. A row whose
// logits hold a NaN or +infinity CHECK-fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weightless::kernels {

inline constexpr int kMaxLogprobs = 20;

struct SamplingParams {
  float temperature = 0;
  int top_k = 0;  // 0 = all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  int64_t seed = 0;
  std::vector<int32_t> stop_token_ids = {};
  int min_tokens = 0;
  // -1: none; 0: of the token itself; n: and of the n most likely, at most kMaxLogprobs
  int num_logprobs = -1;         // of drawn tokens
  int num_prompt_logprobs = -1;  // of prompt tokens
};

// What a row of logits gave. Plain data: a device writes it as it is.
struct SampledToken {
  int32_t token = -1;
  int32_t is_stop = 0;   // drawn, and one of the slot's stop_token_ids
  int32_t num_top = -1;  // -1: no logprobs were wanted
  int32_t rank = 0;      // 1 = most likely
  float logprob = 0;
  // [num_top] by falling probability, ties by smaller id
  int32_t top_tokens[kMaxLogprobs] = {};
  float top_logprobs[kMaxLogprobs] = {};
};

// What sampling knows of the sequence in each slot of an engine, kept where the backend draws:
// parameters, tokens so far, the token drawn last. Changed by Admit and Backend::Sample, in the
// order of the backend's queue.
class SlotStates {
 public:
  virtual ~SlotStates() = default;
  // A new sequence with its known tokens, prompt and then output. They have been read on return.
  virtual void Admit(int slot, const SamplingParams& params, std::span<const int32_t> tokens,
                     int num_prompt_tokens) = 0;
  // Backend memory.
  size_t size_bytes() const { return size_bytes_; }

 protected:
  size_t size_bytes_ = 0;
};

}  // namespace weightless::kernels
