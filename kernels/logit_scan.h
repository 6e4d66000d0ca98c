// Passes over one row of logits, the only loops in sampling as long as the vocabulary. They use
// 16-byte vectors, no fused multiply-add and fixed orders of summation, so their results are the
// same bits on every x86-64 processor. 262,144 logits cost 20 to 70 microseconds a pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weightless::kernels {

struct Candidate {
  float logit = 0;
  int32_t id = 0;
  float weight = 0;  // set by WeighCandidates
};

// The falling order of sampling: larger logit first, ties by smaller id.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// CHECK-fails on a NaN and on +infinity. -infinity when every logit is.
float MaxLogit(std::span<const float> logits);

// Smallest id of the largest logit.
int32_t ArgMax(std::span<const float> logits);

// exp((logit - max) / temperature), relative error below 2e-7; 0 where the exponent is below -87.
float Weight(float logit, float max, float temperature);

// Weight of every candidate.
void WeighCandidates(std::vector<Candidate>& candidates, float max, float temperature);

inline constexpr size_t kSumChunk = 4096;
// Sums of Weight over consecutive chunks of kSumChunk logits.
void SumWeights(std::span<const float> logits, float max, float temperature,
                std::vector<double>& chunk_sums);

// Appends, by rising id, every logit > floor (>= `floor` when `inclusive` is set).
void GatherAbove(std::span<const float> logits, float floor, bool inclusive,
                 std::vector<Candidate>& out);

// The k first by falling order, unsorted; fewer when fewer are above -infinity.
void SelectTop(std::span<const float> logits, size_t k, std::vector<Candidate>& out);

// How many logits stand before `c` in the falling order.
int32_t CountBefore(std::span<const float> logits, const Candidate& c);

}  // namespace weightless::kernels
