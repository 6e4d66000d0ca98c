// The numbers of a run, each with one definition:
//
//   TTFT       sent -> first chunk with content that is not empty (text, reasoning, tool call)
//   TTFC       sent -> first chunk of any kind, also the one that only names the role
//   TPOT       (last - first chunk with content) / (output tokens - 1); from two tokens on
//   ITL        one value for each gap between chunks with content, divided by the tokens a chunk
//              carries: by its token ids, else by (output tokens - 1) / (chunks - 1) of its
//              request; a chunk of k tokens that sends ids counts k times
//   chunk gap  each gap between two chunks with content, as it is
//   E2E        sent -> end of the response
//   sent       right before the first byte of the request is written, on an open connection
//   connect    TCP and TLS, of the requests that had to open a connection; in no other number
//   delay      intended -> sent: an open loop's wait for a slot, a connection, the generator
//   TTFT*, E2E*  from the intended time: what a user of an overloaded server sees
//
// Output tokens are the server's usage, else its token ids, else chunks with content. Latencies are
// those of completed requests.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "loadtest/config.h"
#include "loadtest/runner.h"
#include "loadtest/stats.h"

namespace weightless::loadtest {

struct Samples {
  std::vector<double> ttft, ttfc, tpot, itl, chunk_gap, e2e;  // seconds
  std::vector<double> connect, delay, ttft_intended, e2e_intended;
};

struct Summary {
  double duration_seconds = 0;  // start of the run to the end of its last request
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t unsent = 0;        // open loop: due, but not sent before the end; in no latency
  uint64_t input_tokens = 0;  // of completed requests, like all that follows
  uint64_t output_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t chunks = 0;
  uint64_t good = 0;  // completed within every limit of the SLO
  int max_concurrency = 0;
  double max_output_tokens_per_second = 0;  // best second of the run, tokens when they arrived
  const char* token_source = "";            // usage, token ids or chunks
  Distribution ttft, ttfc, tpot, itl, chunk_gap, e2e, connect, delay, ttft_intended, e2e_intended;

  double PerSecond(uint64_t count) const {
    return duration_seconds > 0 ? static_cast<double>(count) / duration_seconds : 0;
  }
};

// Latencies of one completed request; unset where they do not exist.
struct RequestLatencies {
  std::optional<double> ttft, ttfc, tpot;
  double e2e = 0;
};
RequestLatencies LatenciesOf(const Record& record);

bool MeetsSlo(const RequestLatencies& latencies, const Slo& slo);

// Of the records of one target.
Samples Collect(const std::deque<Record>& records, size_t target);
Summary Summarize(const RunResult& result, size_t target, const Samples& samples, const Slo& slo);

// Requests, tokens and running streams over the run, in `num_bins` bins of equal width.
struct Timeline {
  double bin_seconds = 0;
  std::vector<double> requests_per_second;  // ended
  std::vector<double> tokens_per_second;
  std::vector<double> running;  // mean
  std::vector<double> ttft;     // mean of the requests sent in the bin; negative: none
};
Timeline MakeTimeline(const RunResult& result, size_t target, size_t num_bins);

}  // namespace weightless::loadtest
