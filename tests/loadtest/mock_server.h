// An OpenAI-compatible server whose timings are known and whose faults are planted.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "loadtest/steady_time.h"
#include "loadtest/url.h"

namespace weightless::loadtest {

enum class Fault {
  kNone,
  kWrongUsage,  // one token too many in the usage
  kMissingUsage,
  kMissingDone,     // no [DONE]
  kMissingFinish,   // no finish_reason
  kMissingEnd,      // neither, though the response ends in order
  kDuplicateChunk,  // one chunk with content is sent twice
  kLateFirstByte,   // 300 ms later than the server's own TTFT metric says
  kWrongMetric,     // output tokens in /metrics: one too few for each request
  kBrokenStream,    // the connection closes in the middle
  kErrorEvent,      // an error object in the stream
  kRefusal,         // 503
  kRedirect,        // 307
  kPage,            // 200 with HTML instead of events
  kEndlessEvent,    // an event of 20 MiB that does not end
  kBadUtf8,         // a chunk whose text is not UTF-8
  kContentAfterFinish,
};

struct MockOptions {
  double ttft_seconds = 0;        // request read to first chunk with content
  double itl_seconds = 0;         // between chunks; 0: all at once
  double role_lead_seconds = -1;  // the role alone so long before the first content; < 0: no such
  int tokens_per_chunk = 1;
  bool sends_token_ids = false;
  bool has_tokenize = true;  // one token for each word
  // /metrics answers so many times, then 404.
  int max_scrapes = std::numeric_limits<int>::max();
  int interrupting_scrape = 0;  // before this one is answered, the process gets SIGTERM; 0: none
  Fault fault = Fault::kNone;
  int fault_every = 1;  // every so many requests has the fault, the first of them included
  bool has_witness = false;
};

// What really happened, by the server's clock.
struct MockTimes {
  std::vector<double> ttft;  // request read to first content written
  std::vector<double> tpot;
  std::vector<double> e2e;  // request read to last byte written
  std::vector<double> gaps;
  uint64_t num_tokens = 0;
  SteadyTime first_read;     // of all requests
  SteadyTime last_written;   // of all requests
  std::vector<double> lags;  // how late its event loop was, as LoopMonitor has it
  // With a witness, a thread that only waits for a note written with each chunk: how late it got
  // them. Nothing but the machine makes it late.
  std::vector<double> witness_delays;

  double PerSecond(uint64_t count) const {
    return static_cast<double>(count) / Seconds(last_written - first_read);
  }
};

// Serves on a loopback port of its own, from a thread of its own, until destroyed.
class MockServer {
 public:
  explicit MockServer(MockOptions options);
  ~MockServer();

  Url url() const;
  // Stops the server and returns what it noted.
  MockTimes Stop();
  // Bodies of the generation requests so far. After Stop.
  const std::vector<std::string>& bodies() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightless::loadtest
