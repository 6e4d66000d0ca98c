#include "loadtest/summary.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weightless::loadtest {
namespace {

bool IsCompleted(const Record& record, size_t target) {
  return record.target == target && record.outcome == Outcome::kCompleted;
}

// Tokens a chunk stands for, on average over its request.
double TokensPerChunk(const Record& record) {
  const uint64_t tokens = OutputTokens(record);
  // One more token than chunks: the end-of-sequence token, which has no text.
  if (record.content.empty() || tokens <= record.content.size() + 1) return 1;
  return static_cast<double>(tokens) / static_cast<double>(record.content.size());
}

void CollectGaps(const Record& record, Samples& samples) {
  const uint64_t tokens = OutputTokens(record);
  const size_t chunks = record.content.size();
  if (chunks < 2) return;
  const bool is_one_each = tokens <= chunks + 1;
  const double tokens_per_gap =
      is_one_each ? 1 : static_cast<double>(tokens - 1) / static_cast<double>(chunks - 1);
  for (size_t i = 1; i < chunks; ++i) {
    const double gap = Seconds(record.content[i].when - record.content[i - 1].when);
    samples.chunk_gap.push_back(gap);
    const uint32_t ids = record.content[i].num_token_ids;
    if (ids > 0) {
      samples.itl.insert(samples.itl.end(), ids, gap / ids);
    } else {
      samples.itl.push_back(gap / tokens_per_gap);
    }
  }
}

int MaxConcurrency(const std::deque<Record>& records, size_t target) {
  std::vector<std::pair<SteadyTime, int>> changes;
  for (const Record& record : records) {
    if (record.target != target) continue;
    changes.emplace_back(record.sent, 1);
    changes.emplace_back(record.ended, -1);
  }
  std::sort(changes.begin(), changes.end());  // an end before a start at the same time
  int running = 0;
  int most = 0;
  for (const auto& [when, change] : changes) most = std::max(most, running += change);
  return most;
}

const char* TokenSource(const std::deque<Record>& records, size_t target) {
  const char* source = "usage";
  for (const Record& record : records) {
    if (!IsCompleted(record, target) || record.usage) continue;
    source = record.has_token_ids ? "token ids" : "chunks";
  }
  return source;
}

size_t BinOf(SteadyTime when, SteadyTime start, double bin_seconds, size_t num_bins) {
  const double position = std::max(0.0, Seconds(when - start)) / bin_seconds;
  return std::min(static_cast<size_t>(position), num_bins - 1);
}

double BestSecond(const RunResult& result, size_t target, double duration) {
  const size_t num_bins = static_cast<size_t>(std::ceil(duration)) + 1;
  std::vector<double> tokens(num_bins);
  for (const Record& record : result.records) {
    if (record.target != target) continue;
    const double weight = TokensPerChunk(record);
    for (const ContentMark& mark : record.content) {
      tokens[BinOf(mark.when, result.started, 1, num_bins)] += weight;
    }
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

}  // namespace

RequestLatencies LatenciesOf(const Record& record) {
  RequestLatencies out;
  out.e2e = Seconds(record.ended - record.sent);
  if (record.first_chunk) out.ttfc = Seconds(*record.first_chunk - record.sent);
  if (record.content.empty()) return out;
  out.ttft = Seconds(record.content.front().when - record.sent);
  const uint64_t tokens = OutputTokens(record);
  if (tokens < 2 || record.content.size() < 2) return out;
  out.tpot = Seconds(record.content.back().when - record.content.front().when) /
             static_cast<double>(tokens - 1);
  return out;
}

bool MeetsSlo(const RequestLatencies& latencies, const Slo& slo) {
  if (slo.ttft_seconds && !(latencies.ttft && *latencies.ttft <= *slo.ttft_seconds)) return false;
  if (slo.tpot_seconds && latencies.tpot && *latencies.tpot > *slo.tpot_seconds) return false;
  return !slo.e2e_seconds || latencies.e2e <= *slo.e2e_seconds;
}

Samples Collect(const std::deque<Record>& records, size_t target) {
  Samples samples;
  for (const Record& record : records) {
    if (!IsCompleted(record, target)) continue;
    const RequestLatencies latencies = LatenciesOf(record);
    const double delay = Seconds(record.sent - record.intended);
    samples.e2e.push_back(latencies.e2e);
    samples.delay.push_back(delay);
    samples.e2e_intended.push_back(latencies.e2e + delay);
    if (latencies.ttfc) samples.ttfc.push_back(*latencies.ttfc);
    if (latencies.ttft) {
      samples.ttft.push_back(*latencies.ttft);
      samples.ttft_intended.push_back(*latencies.ttft + delay);
    }
    if (latencies.tpot) samples.tpot.push_back(*latencies.tpot);
    if (record.connect_seconds > 0) samples.connect.push_back(record.connect_seconds);
    CollectGaps(record, samples);
  }
  return samples;
}

Summary Summarize(const RunResult& result, size_t target, const Samples& samples, const Slo& slo) {
  Summary out;
  out.duration_seconds = Seconds(result.ended - result.started);
  out.unsent = result.unsent.size();
  for (const Record& record : result.records) {
    if (record.target != target) continue;
    if (record.outcome == Outcome::kFailed) ++out.failed;
    if (record.outcome == Outcome::kCancelled) ++out.cancelled;
    if (record.outcome != Outcome::kCompleted) continue;
    ++out.completed;
    out.input_tokens += InputTokens(record);
    out.output_tokens += OutputTokens(record);
    out.chunks += record.content.size();
    if (record.usage) out.cached_tokens += static_cast<uint64_t>(record.usage->cached_tokens);
    if (MeetsSlo(LatenciesOf(record), slo)) ++out.good;
  }
  out.max_concurrency = MaxConcurrency(result.records, target);
  out.max_output_tokens_per_second = BestSecond(result, target, out.duration_seconds);
  out.token_source = TokenSource(result.records, target);
  out.ttft = Describe(samples.ttft);
  out.ttfc = Describe(samples.ttfc);
  out.tpot = Describe(samples.tpot);
  out.itl = Describe(samples.itl);
  out.chunk_gap = Describe(samples.chunk_gap);
  out.e2e = Describe(samples.e2e);
  out.connect = Describe(samples.connect);
  out.delay = Describe(samples.delay);
  out.ttft_intended = Describe(samples.ttft_intended);
  out.e2e_intended = Describe(samples.e2e_intended);
  return out;
}

Timeline MakeTimeline(const RunResult& result, size_t target, size_t num_bins) {
  Timeline out;
  const double duration = std::max(Seconds(result.ended - result.started), 1e-6);
  out.bin_seconds = duration / static_cast<double>(num_bins);
  out.requests_per_second.assign(num_bins, 0);
  out.tokens_per_second.assign(num_bins, 0);
  out.running.assign(num_bins, 0);
  out.ttft.assign(num_bins, 0);
  std::vector<int> num_sent(num_bins);
  const auto bin = [&](SteadyTime when) {
    return BinOf(when, result.started, out.bin_seconds, num_bins);
  };
  for (const Record& record : result.records) {
    if (record.target != target) continue;
    if (record.outcome == Outcome::kCompleted) {
      out.requests_per_second[bin(record.ended)] += 1 / out.bin_seconds;
    }
    const double weight = TokensPerChunk(record) / out.bin_seconds;
    for (const ContentMark& mark : record.content) out.tokens_per_second[bin(mark.when)] += weight;
    for (size_t i = bin(record.sent); i <= bin(record.ended); ++i) {
      const double low = out.bin_seconds * static_cast<double>(i);
      const double overlap =
          std::min(Seconds(record.ended - result.started), low + out.bin_seconds) -
          std::max(Seconds(record.sent - result.started), low);
      out.running[i] += std::max(overlap, 0.0) / out.bin_seconds;
    }
    if (record.content.empty()) continue;
    out.ttft[bin(record.sent)] += Seconds(record.content.front().when - record.sent);
    ++num_sent[bin(record.sent)];
  }
  for (size_t i = 0; i < num_bins; ++i) {
    out.ttft[i] = num_sent[i] > 0 ? out.ttft[i] / num_sent[i] : -1;
  }
  return out;
}

}  // namespace weightless::loadtest
