// The results of a session, and the forms they are written in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/audit.h"
#include "loadtest/compare.h"
#include "loadtest/config.h"
#include "loadtest/runner.h"
#include "loadtest/summary.h"

namespace weightless::loadtest {

// One run as one target saw it.
struct Report {
  std::string name;  // "concurrency 32", "A: http://.."
  std::string url;
  double sweep_point = 0;
  int concurrency = 0;  // of a closed loop; else the open loop's cap
  bool is_open_loop = false;
  std::optional<double> rate{};               // of an open loop with a fixed rate
  std::shared_ptr<const RunResult> result{};  // shared: the two sides of --compare have one run
  size_t target = 0;
  Samples samples{};
  Summary summary{};
  std::vector<AuditCheck> audit{};  // empty with --no-audit
};

struct Session {
  Config config;
  std::string model;
  std::string date;     // local time, YYYYMMDD-HHMMSS
  std::string load;     // "closed loop, 32 streams"
  std::string prompts;  // what is sent, and who counted its tokens
  std::vector<Report> reports;
  std::optional<Comparison> comparison;
  bool was_interrupted = false;
};

// For a terminal.
std::string TableReport(const Session& session);

// The keys that `vllm bench serve --save-result` writes, with their meaning (itl is the gap between
// chunks), then ours: "loadtest" with every distribution, the audit and the definitions. A session
// of several runs has them in "runs"; the top level is then the last run's. Never holds the API
// key.
std::string JsonReport(const Session& session);

// One line for each request, times in ms since the start of its run; the outcome of one that was
// due, but never sent, is "unsent".
std::string CsvReport(const Session& session);

// One page that needs nothing else: tables, distributions, timelines, and for several runs the
// curves over them.
std::string HtmlReport(const Session& session);

// The name, and what it measures, of each latency in the order of the reports.
struct LatencyRow {
  const char* name;
  const char* key;
  const char* definition;
  Distribution Summary::*distribution;
};
std::vector<LatencyRow> LatencyRows(bool is_open_loop);

// "passed", "failed" or "skipped".
const char* VerdictName(Verdict verdict);

// "9 requests were due, but not sent before the end; TTFT* and E2E* lack them"; empty: none were.
std::string UnsentNote(const Summary& summary);

// "request 7: HTTP 503: overloaded" of the first request that failed; empty when none did.
std::string FirstFailure(const Report& report);

}  // namespace weightless::loadtest
