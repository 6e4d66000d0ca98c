#include "absl/strings/str_format.h"
#include "common/concat.h"
#include "loadtest/report.h"

namespace weightless::loadtest {
namespace {

std::string Counts(const Report& report, const Slo& slo, bool is_shared) {
  const Summary& s = report.summary;
  std::string out = absl::StrFormat(
      "requests          %d completed, %d failed, %d cancelled; at most %d at once\n"
      "duration          %.3f s%s\n"
      "requests/s        %.3f\n",
      s.completed, s.failed, s.cancelled, s.max_concurrency, s.duration_seconds,
      is_shared ? " of both servers; the rates are shares of it, not capacities" : "",
      s.PerSecond(s.completed));
  if (slo.is_set()) {
    out += absl::StrFormat("goodput           %.3f requests/s within the SLO (%d of %d)\n",
                           s.PerSecond(s.good), s.good, s.completed);
  }
  out += absl::StrFormat(
      "output tokens/s   %.1f (best second %.0f; %d tokens in %d chunks, counted by %s)\n"
      "total tokens/s    %.1f (%d input tokens, %d of them cached)\n",
      s.PerSecond(s.output_tokens), s.max_output_tokens_per_second, s.output_tokens, s.chunks,
      s.token_source, s.PerSecond(s.input_tokens + s.output_tokens), s.input_tokens,
      s.cached_tokens);
  return out;
}

std::string Latencies(const Summary& summary, bool is_open_loop) {
  std::string out = absl::StrFormat("%-10s %9s %9s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50",
                                    "p90", "p95", "p99", "max", "count");
  for (const LatencyRow& row : LatencyRows(is_open_loop)) {
    const Distribution& d = summary.*row.distribution;
    if (d.count == 0) continue;
    out +=
        absl::StrFormat("%-10s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9d\n", row.name, d.mean * 1e3,
                        d.p50 * 1e3, d.p90 * 1e3, d.p95 * 1e3, d.p99 * 1e3, d.max * 1e3, d.count);
  }
  return out;
}

std::string AuditLines(const std::vector<AuditCheck>& audit) {
  std::string out;
  for (const AuditCheck& check : audit) {
    const bool is_failed = check.verdict == Verdict::kFailed;
    out += absl::StrFormat("audit %-14s %-7s %s\n", check.name,
                           is_failed ? "FAILED" : VerdictName(check.verdict), check.detail);
  }
  return out;
}

std::string SweepTable(const Session& session) {
  const char* axis = session.config.sweep == SweepKind::kRate ? "rate" : "streams";
  std::string out =
      absl::StrFormat("\n%9s %9s %10s %10s %10s %10s %10s %7s\n", axis, "req/s", "tokens/s",
                      "TTFT p50", "TTFT p99", "TPOT p50", "E2E p50", "failed");
  for (const Report& report : session.reports) {
    const Summary& s = report.summary;
    out += absl::StrFormat("%9g %9.2f %10.1f %10.2f %10.2f %10.2f %10.2f %7d\n", report.sweep_point,
                           s.PerSecond(s.completed), s.PerSecond(s.output_tokens), s.ttft.p50 * 1e3,
                           s.ttft.p99 * 1e3, s.tpot.p50 * 1e3, s.e2e.p50 * 1e3, s.failed);
  }
  return out;
}

std::string ComparisonTable(const Comparison& comparison) {
  std::string out = absl::StrFormat(
      "\nB / A over %d pairs, with 95 %% confidence intervals (bootstrap over pairs)\n"
      "%-22s %10s %10s %8s   %s\n",
      comparison.num_pairs, "", "A", "B", "B/A", "interval");
  for (const ComparisonRow& row : comparison.rows) {
    out += absl::StrFormat("%-22s %10.3f %10.3f %8.3f   %.3f .. %.3f  (%s)\n", row.name,
                           row.a * row.scale, row.b * row.scale, row.ratio.value, row.ratio.low,
                           row.ratio.high, row.unit);
  }
  return out;
}

}  // namespace

std::string TableReport(const Session& session) {
  std::string out = Concat("\n", session.model, ", ",
                           session.config.endpoint == Endpoint::kChat ? "chat" : "completions",
                           ", ", session.load, "\nprompts: ", session.prompts, "\n");
  for (const Report& report : session.reports) {
    out += Concat("\n", report.name, session.was_interrupted ? "  (interrupted)" : "", "\n");
    out += Counts(report, session.config.slo, session.comparison.has_value());
    if (const std::string failure = FirstFailure(report); !failure.empty()) {
      out += Concat("first failure     ", failure, "\n");
    }
    if (report.summary.unsent > 0) {
      out += Concat("never sent        ", UnsentNote(report.summary), "\n");
    }
    out += Latencies(report.summary, report.is_open_loop);
    out += AuditLines(report.audit);
  }
  if (session.reports.size() > 1 && session.config.sweep != SweepKind::kNone) {
    out += SweepTable(session);
  }
  if (session.comparison) out += ComparisonTable(*session.comparison);
  return out;
}

}  // namespace weightless::loadtest
