// The sampling of kernels/sample.h on host memory, one row at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/logit_scan.h"
#include "kernels/sample.h"

namespace weightless::kernels {

// One row of logits to sample from, or only to report on.
struct SampleRow {
  const SamplingParams* params = nullptr;  // needed with draw
  std::span<const int32_t> tokens = {};    // prompt, then output so far
  int num_prompt_tokens = 0;
  bool draw = true;           // false: logprobs of target_token only
  int32_t target_token = -1;  // with draw = false
  int num_logprobs = -1;      // as in SamplingParams
};

// Holds scratch memory only; one per thread. Results do not depend on earlier calls.
class Sampler {
 public:
  // Changes logits while it runs and restores them.
  SampledToken Sample(std::span<float> logits, const SampleRow& row);

 private:
  void Penalise(std::span<float> logits, const SampleRow& row);
  void BiasAndForbid(std::span<float> logits, const SampleRow& row);
  void Set(std::span<float> logits, int32_t id, float value);
  int32_t Draw(std::span<const float> logits, const SamplingParams& params, double uniform);
  int32_t DrawFromAll(std::span<const float> logits, const SamplingParams& params, float max,
                      double uniform);
  void GatherCandidates(std::span<const float> logits, const SamplingParams& params, float max);
  void KeepTop(std::span<const float> logits, size_t k);
  void KeepNucleus(double mass);
  double SumOfCandidates() const;

  std::vector<Candidate> candidates_;  // by rising id
  std::vector<Candidate> selection_;
  std::vector<double> chunk_sums_;
  std::vector<uint32_t> counts_;  // [vocab], all zero between calls
  std::vector<int32_t> seen_;
  std::vector<std::pair<int32_t, float>> changed_;  // id and value before
};

}  // namespace weightless::kernels
