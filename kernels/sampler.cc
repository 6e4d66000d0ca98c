#include "kernels/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "kernels/philox.h"

namespace weightless::kernels {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr uint32_t kInPrompt = uint32_t{1} << 31;  // beside the count of output tokens

double Total(const std::vector<double>& sums) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

SampledToken Sampler::Sample(std::span<float> logits, const SampleRow& row) {
  const float max = MaxLogit(logits);
  SampledToken result;
  result.token = row.target_token;
  CHECK(row.num_logprobs <= kMaxLogprobs);
  if (row.num_logprobs >= 0) result.num_top = 0;
  if (row.num_logprobs > 0) {
    SelectTop(logits, static_cast<size_t>(row.num_logprobs), selection_);
    std::sort(selection_.begin(), selection_.end(), Before);
    for (const Candidate& c : selection_) {
      result.top_tokens[result.num_top] = c.id;
      result.top_logprobs[result.num_top++] = c.logit;
    }
  }
  if (row.draw) {
    const SamplingParams& params = *row.params;
    Penalise(logits, row);
    BiasAndForbid(logits, row);
    const auto position = static_cast<int64_t>(row.tokens.size());
    result.token = params.temperature > 0 ? Draw(logits, params, UniformAt(params.seed, position))
                                          : ArgMax(logits);
    const std::vector<int32_t>& stops = params.stop_token_ids;
    result.is_stop = std::find(stops.begin(), stops.end(), result.token) != stops.end() ? 1 : 0;
    for (; !changed_.empty(); changed_.pop_back()) {
      logits[static_cast<size_t>(changed_.back().first)] = changed_.back().second;
    }
  }
  if (row.num_logprobs >= 0) {
    const auto id = static_cast<size_t>(result.token);
    CHECK(id < logits.size());
    SumWeights(logits, max, 1.0f, chunk_sums_);
    const double log_total = static_cast<double>(max) + std::log(Total(chunk_sums_));
    const auto logprob = [&](float logit) {
      return static_cast<float>(static_cast<double>(logit) - log_total);
    };
    result.logprob = logprob(logits[id]);
    result.rank = 1 + CountBefore(logits, {.logit = logits[id], .id = result.token});
    for (int i = 0; i < result.num_top; ++i) {
      result.top_logprobs[i] = logprob(result.top_logprobs[i]);
    }
  }
  return result;
}

void Sampler::Set(std::span<float> logits, int32_t id, float value) {
  float& logit = logits[static_cast<size_t>(id)];
  changed_.emplace_back(id, logit);
  logit = value;
}

void Sampler::Penalise(std::span<float> logits, const SampleRow& row) {
  const SamplingParams& p = *row.params;
  if (p.repetition_penalty == 1 && p.presence_penalty == 0 && p.frequency_penalty == 0) return;
  if (counts_.size() < logits.size()) counts_.resize(logits.size());
  for (size_t i = 0; i < row.tokens.size(); ++i) {
    const auto id = static_cast<size_t>(row.tokens[i]);
    CHECK(id < logits.size());
    if (counts_[id] == 0) seen_.push_back(row.tokens[i]);
    if (i < static_cast<size_t>(row.num_prompt_tokens)) {
      counts_[id] |= kInPrompt;
    } else {
      ++counts_[id];
    }
  }
  for (const int32_t id : seen_) {
    const auto count = static_cast<float>(counts_[static_cast<size_t>(id)] & ~kInPrompt);
    counts_[static_cast<size_t>(id)] = 0;
    float l = logits[static_cast<size_t>(id)];
    l = l > 0 ? l / p.repetition_penalty : l * p.repetition_penalty;
    l -= p.frequency_penalty * count + (count > 0 ? p.presence_penalty : 0.0f);
    Set(logits, id, std::clamp(l, -kLargest, kLargest));
  }
  seen_.clear();
}

void Sampler::BiasAndForbid(std::span<float> logits, const SampleRow& row) {
  const SamplingParams& p = *row.params;
  const auto in_vocab = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < logits.size();
  };
  for (const auto& [id, bias] : p.logit_bias) {
    if (!in_vocab(id)) continue;
    Set(logits, id, std::clamp(logits[static_cast<size_t>(id)] + bias, -kLargest, kLargest));
  }
  const auto num_output_tokens =
      static_cast<int64_t>(row.tokens.size()) - int64_t{row.num_prompt_tokens};
  if (num_output_tokens >= p.min_tokens) return;
  for (const int32_t id : p.stop_token_ids) {
    if (in_vocab(id)) Set(logits, id, kNegativeInfinity);
  }
}

int32_t Sampler::Draw(std::span<const float> logits, const SamplingParams& params, double uniform) {
  const float max = MaxLogit(logits);
  if (max == kNegativeInfinity) return 0;  // everything is forbidden
  const bool limits_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();
  if (!limits_k && params.top_p >= 1 && params.min_p <= 0) {
    return DrawFromAll(logits, params, max, uniform);
  }
  GatherCandidates(logits, params, max);
  double rest = uniform * SumOfCandidates();
  int32_t token = candidates_.front().id;
  for (const Candidate& c : candidates_) {
    if (c.weight > 0) token = c.id;
    rest -= static_cast<double>(c.weight);
    if (rest < 0) break;
  }
  return token;
}

double Sampler::SumOfCandidates() const {
  double sum = 0;
  for (const Candidate& c : candidates_) sum += static_cast<double>(c.weight);
  return sum;
}

int32_t Sampler::DrawFromAll(std::span<const float> logits, const SamplingParams& params, float max,
                             double uniform) {
  SumWeights(logits, max, params.temperature, chunk_sums_);
  double rest = uniform * Total(chunk_sums_);
  size_t chunk = 0;
  while (chunk + 1 < chunk_sums_.size() && rest >= chunk_sums_[chunk]) rest -= chunk_sums_[chunk++];
  int32_t token = 0;
  for (size_t i = chunk * kSumChunk; i < logits.size(); ++i) {
    const float weight = Weight(logits[i], max, params.temperature);
    if (weight > 0) token = static_cast<int32_t>(i);
    rest -= static_cast<double>(weight);
    if (rest < 0 && weight > 0) break;
  }
  return token;
}

// Fills candidates_ with what top_k, top_p and min_p leave.
void Sampler::GatherCandidates(std::span<const float> logits, const SamplingParams& params,
                               float max) {
  const float temperature = params.temperature;
  candidates_.clear();
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size()) {
    KeepTop(logits, static_cast<size_t>(params.top_k));
    WeighCandidates(candidates_, max, temperature);
    if (params.top_p < 1) KeepNucleus(static_cast<double>(params.top_p) * SumOfCandidates());
  } else if (params.top_p < 1) {
    SumWeights(logits, max, temperature, chunk_sums_);
    const double mass = static_cast<double>(params.top_p) * Total(chunk_sums_);
    // Most of the mass lies within e^-10 of the maximum; when it does not, take all.
    GatherAbove(logits, max - 10 * temperature, true, candidates_);
    WeighCandidates(candidates_, max, temperature);
    if (SumOfCandidates() < mass) {
      candidates_.clear();
      GatherAbove(logits, kNegativeInfinity, false, candidates_);
      WeighCandidates(candidates_, max, temperature);
    }
    KeepNucleus(mass);
  } else {
    const float log_min_p = std::log(std::min(params.min_p, 1.0f)) - 1e-3f;
    GatherAbove(logits, max + log_min_p * temperature, true, candidates_);
    WeighCandidates(candidates_, max, temperature);
  }
  std::erase_if(candidates_,
                [&](const Candidate& c) { return c.weight < std::min(params.min_p, 1.0f); });
}

void Sampler::KeepTop(std::span<const float> logits, size_t k) {
  SelectTop(logits, k, selection_);
  const Candidate border = *std::max_element(selection_.begin(), selection_.end(), Before);
  GatherAbove(logits, border.logit, true, candidates_);
  std::erase_if(candidates_, [&](const Candidate& c) { return Before(border, c); });
}

// Keeps the smallest prefix of the falling order whose weights reach `mass`: quickselect by weight.
void Sampler::KeepNucleus(double mass) {
  selection_ = candidates_;
  auto first = selection_.begin();
  auto last = selection_.end();
  double before = 0;  // weight of everything that stands before [first, last)
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, Before);
    double half = 0;
    for (auto c = first; c != middle; ++c) half += static_cast<double>(c->weight);
    if (before + half >= mass) {
      last = middle;
    } else {
      before += half;
      first = middle;
    }
  }
  const Candidate border = *first;
  std::erase_if(candidates_, [&](const Candidate& c) { return Before(border, c); });
}

}  // namespace weightless::kernels
