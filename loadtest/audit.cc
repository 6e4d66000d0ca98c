#include "loadtest/audit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/concat.h"

namespace weightless::loadtest {
namespace {

constexpr double kTtftShare = 0.2;  // of the value, beside the fixed tolerance

// Counts what is wrong and keeps the first example.
class Findings {
 public:
  void Add(const Record& record, const std::string& what) {
    if (num_++ == 0) first_ = Concat("request ", record.index, ": ", what);
  }
  AuditCheck Check(const char* name, std::string looked_at) const {
    if (num_ == 0) return {name, Verdict::kPassed, std::move(looked_at)};
    return {name, Verdict::kFailed, Concat(num_, num_ == 1 ? " problem; " : " problems; ", first_)};
  }

 private:
  size_t num_ = 0;
  std::string first_;
};

double P99(std::vector<double> sample) { return Describe(std::move(sample)).p99; }

AuditCheck CheckGenerator(const AuditInput& input) {
  const GeneratorLoad& load = input.result.load;
  const double lag = P99(load.lags);
  const double delay = P99(load.send_delays);
  AuditCheck check{.name = "generator"};
  check.detail = absl::StrFormat(
      "event loop late by %.2f ms (p99; limit %.0f), CPU %.0f %% of one "
      "core (limit %.0f)",
      lag * 1e3, input.limits.loop_lag_seconds * 1e3, load.cpu_share() * 100,
      input.limits.cpu_share * 100);
  bool is_late = lag > input.limits.loop_lag_seconds || load.cpu_share() > input.limits.cpu_share;
  if (input.is_open_loop) {
    check.detail += absl::StrFormat(", sent late by %.2f ms (p99; limit %.0f)", delay * 1e3,
                                    input.limits.send_delay_seconds * 1e3);
    is_late = is_late || delay > input.limits.send_delay_seconds;
  }
  const auto& records = input.result.records;
  const auto num_no_socket = std::count_if(
      records.begin(), records.end(), [](const Record& record) { return record.found_no_socket; });
  if (num_no_socket > 0) {
    check.detail += Concat(", ", num_no_socket, num_no_socket == 1 ? " connection" : " connections",
                           " found no file or port on this machine");
  }
  if (is_late || num_no_socket > 0) check.verdict = Verdict::kFailed;
  return check;
}

AuditCheck CheckStreams(const AuditInput& input) {
  Findings findings;
  for (const Record& record : input.result.records) {
    if (record.target != input.target) continue;
    if (record.ended_with_neither) findings.Add(record, "neither [DONE] nor a finish_reason");
    if (record.outcome != Outcome::kCompleted) continue;
    if (!record.has_done) findings.Add(record, "ended without [DONE]");
    if (record.num_finish_reasons == 0) findings.Add(record, "ended without a finish_reason");
    if (record.num_finish_reasons > 1) {
      findings.Add(record, Concat(record.num_finish_reasons, " finish reasons"));
    }
    if (record.num_content_after_finish > 0)
      findings.Add(record, "content after its finish_reason");
    if (record.num_events_after_done > 0) findings.Add(record, "events after [DONE]");
  }
  return findings.Check("streams", Concat(input.summary.completed,
                                          " streams ended with one finish_reason and [DONE]"));
}

void CheckUsageOf(const Record& record, Findings& findings) {
  if (!record.usage) return findings.Add(record, "no usage, though it was asked for");
  const auto tokens = static_cast<uint64_t>(record.usage->completion_tokens);
  const size_t chunks = record.content.size();
  if (record.has_token_ids && record.num_token_ids != tokens) {
    findings.Add(record, Concat("usage of ", tokens, " tokens, but ", record.num_token_ids,
                                " token ids in the stream"));
  } else if (tokens < chunks) {
    findings.Add(record, Concat("usage of ", tokens, " tokens, but ", chunks,
                                " chunks with content (a duplicate, or a wrong usage)"));
  } else if (tokens > record.max_tokens) {
    findings.Add(record,
                 Concat("usage of ", tokens, " tokens exceeds max_tokens ", record.max_tokens));
  } else if (record.finish_reason == "length" && tokens < record.max_tokens) {
    findings.Add(record, Concat("finish_reason length after ", tokens, " of ", record.max_tokens,
                                " tokens"));
  }
}

AuditCheck CheckUsage(const AuditInput& input) {
  Findings findings;
  size_t num_exact = 0;
  size_t num_usages = 0;
  for (const Record& record : input.result.records) {
    if (record.target != input.target || record.outcome != Outcome::kCompleted) continue;
    CheckUsageOf(record, findings);
    if (record.usage) ++num_usages;
    if (record.has_token_ids || record.finish_reason == "length") ++num_exact;
  }
  if (num_usages == 0) {
    return {"usage", Verdict::kSkipped, "the server sends no usage; a chunk is taken as a token"};
  }
  return findings.Check(
      "usage", Concat(input.summary.completed, " usages, ", num_exact,
                      " of them exact (token ids or length), the others at least their chunks and "
                      "at most max_tokens"));
}

// The server's count must lie between the client's and the client's with `uncertain` more, give or
// take the tolerance.
void CompareCount(const char* what, double client, double uncertain, std::optional<double> server,
                  double tolerance, AuditCheck& check) {
  if (!server) return;
  if (!check.detail.empty()) check.detail += ", ";
  check.detail += absl::StrFormat("%s %.0f here and %.0f there", what, client, *server);
  const double slack = tolerance * client;
  if (*server < client - slack || *server > client + uncertain + slack) {
    check.verdict = Verdict::kFailed;
  }
}

AuditCheck WithoutServer(const char* name, const AuditInput& input) {
  if (!input.had_server) return {name, Verdict::kSkipped, input.no_server_reason};
  return {name, Verdict::kFailed,
          "metrics were there before the run, not after it: " + input.no_server_reason};
}

AuditCheck CheckServerCounts(const AuditInput& input) {
  AuditCheck check{.name = "server counts"};
  if (!input.server) return WithoutServer(check.name, input);
  if (input.server->requests.value_or(0) < 0 || input.server->output_tokens.value_or(0) < 0) {
    return {check.name, Verdict::kFailed, "counters fell during the run: the server restarted"};
  }
  const Summary& summary = input.summary;
  double uncertain_input = 0;
  double uncertain_output = 0;
  for (const Record& record : input.result.records) {
    if (record.target != input.target || record.outcome == Outcome::kCompleted) continue;
    uncertain_input += 2 * static_cast<double>(record.planned_input) + 1024;
    uncertain_output += static_cast<double>(record.max_tokens);
  }
  const double tolerance = input.limits.count_tolerance;
  CompareCount("requests", static_cast<double>(summary.completed),
               static_cast<double>(summary.failed + summary.cancelled), input.server->requests,
               tolerance, check);
  const uint64_t cached = input.server->has_cached_prompt_tokens ? 0 : summary.cached_tokens;
  CompareCount(cached > 0 ? "prompt tokens without the cached" : "prompt tokens",
               static_cast<double>(summary.input_tokens - cached), uncertain_input,
               input.server->prompt_tokens, tolerance, check);
  CompareCount("output tokens", static_cast<double>(summary.output_tokens), uncertain_output,
               input.server->output_tokens, tolerance, check);
  check.detail += absl::StrFormat(" (%s metrics; tolerance %g)", input.server->family, tolerance);
  return check;
}

AuditCheck CheckServerTtft(const AuditInput& input) {
  const char* name = "server TTFT";
  if (!input.server) return WithoutServer(name, input);
  const auto& buckets = input.server->ttft_buckets;
  if (buckets.empty()) return {name, Verdict::kSkipped, "the server has no TTFT histogram"};
  std::vector<double> ttfts;
  for (const Record& record : input.result.records) {
    if (record.target != input.target || record.content.empty()) continue;
    ttfts.push_back(Seconds(record.content.front().when - record.sent));
  }
  std::sort(ttfts.begin(), ttfts.end());
  const double total = buckets.rbegin()->second;
  for (const auto& [bound, at_or_below] : buckets) {
    if (std::isinf(bound)) continue;
    const double limit = bound * (1 + kTtftShare) + input.limits.ttft_tolerance_seconds;
    const auto slow_here = ttfts.end() - std::upper_bound(ttfts.begin(), ttfts.end(), limit);
    const double slow_there = total - at_or_below;
    if (static_cast<double>(slow_here) > slow_there) {
      return {
          name, Verdict::kFailed,
          absl::StrFormat("%d requests took over %.1f ms here, but only %.0f over %.1f ms by the "
                          "server's histogram",
                          slow_here, limit * 1e3, slow_there, bound * 1e3)};
    }
  }
  return {name, Verdict::kPassed,
          absl::StrFormat("%d first tokens, none later than the server's histogram by over %.0f ms "
                          "and a fifth",
                          ttfts.size(), input.limits.ttft_tolerance_seconds * 1e3)};
}

}  // namespace

std::vector<AuditCheck> Audit(const AuditInput& input) {
  return {CheckGenerator(input), CheckStreams(input), CheckUsage(input), CheckServerCounts(input),
          CheckServerTtft(input)};
}

bool HasFailure(const std::vector<AuditCheck>& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const AuditCheck& check) { return check.verdict == Verdict::kFailed; });
}

}  // namespace weightless::loadtest
