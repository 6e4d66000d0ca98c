#include "loadtest/report.h"

#include "common/concat.h"

namespace weightless::loadtest {

std::vector<LatencyRow> LatencyRows(bool is_open_loop) {
  std::vector<LatencyRow> rows = {
      {"TTFT", "ttft", "sent to the first chunk with content", &Summary::ttft},
      {"TTFC", "ttfc", "sent to the first chunk of any kind", &Summary::ttfc},
      {"TPOT", "tpot", "(last - first chunk with content) / (output tokens - 1)", &Summary::tpot},
      {"ITL", "itl_per_token", "gap between chunks with content, divided by the tokens of a chunk",
       &Summary::itl},
      {"chunk gap", "chunk_gap", "gap between chunks with content", &Summary::chunk_gap},
      {"E2E", "e2e", "sent to the end of the response", &Summary::e2e},
      {"connect", "connect", "TCP and TLS of new connections; in no other number",
       &Summary::connect}};
  if (is_open_loop) {
    rows.push_back({"TTFT*", "ttft_intended", "intended to the first chunk with content",
                    &Summary::ttft_intended});
    rows.push_back(
        {"E2E*", "e2e_intended", "intended to the end of the response", &Summary::e2e_intended});
    rows.push_back({"delay", "delay", "intended to sent", &Summary::delay});
  }
  return rows;
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kSkipped:
      break;
  }
  return "skipped";
}

std::string UnsentNote(const Summary& summary) {
  if (summary.unsent == 0) return "";
  return Concat(summary.unsent, summary.unsent == 1 ? " request was" : " requests were",
                " due, but not sent before the end; TTFT* and E2E* lack ",
                summary.unsent == 1 ? "it" : "them");
}

std::string FirstFailure(const Report& report) {
  for (const Record& record : report.result->records) {
    if (record.target == report.target && record.outcome == Outcome::kFailed) {
      return Concat("request ", record.index, ": ", record.error);
    }
  }
  return "";
}

}  // namespace weightless::loadtest
