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

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weightless::kernels {

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
};

// One row of logits to sample from, or only to report on.
struct SampleRow {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> tokens = {};  // prompt, then output so far
  int num_prompt_tokens = 0;
  bool draw = true;           // false: logprobs of target_token only
  int32_t target_token = -1;  // with draw = false
  int num_logprobs = -1;      // -1: none; 0: the token itself; n: and the n most likely
};

struct SampledToken {
  int32_t token = -1;
  float logprob = 0;                                // with num_logprobs >= 0
  int rank = 0;                                     // 1 = most likely
  std::vector<std::pair<int32_t, float>> top = {};  // by falling probability, ties by smaller id
};

}  // namespace weightless::kernels
