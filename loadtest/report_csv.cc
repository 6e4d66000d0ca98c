#include "absl/strings/str_format.h"
#include "loadtest/report.h"

namespace weightless::loadtest {
namespace {

const char* OutcomeWord(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kRunning:
      break;
  }
  return "running";
}

std::string Milliseconds(std::optional<double> seconds) {
  return seconds ? absl::StrFormat("%.3f", *seconds * 1e3) : "";
}

std::string Escaped(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + "\"";
}

std::string Line(const Report& report, const Record& record) {
  const RequestLatencies latencies = LatenciesOf(record);
  const SteadyTime start = report.result->started;
  return absl::StrFormat(
      "%s,%d,%s,%d,%d,%d,%d,%d,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n", Escaped(report.name), record.index,
      OutcomeWord(record.outcome), record.http_status, InputTokens(record), OutputTokens(record),
      record.max_tokens, record.content.size(), Escaped(record.finish_reason),
      Milliseconds(Seconds(record.intended - start)), Milliseconds(Seconds(record.sent - start)),
      Milliseconds(Seconds(record.ended - start)), Milliseconds(record.connect_seconds),
      Milliseconds(latencies.ttfc), Milliseconds(latencies.ttft), Milliseconds(latencies.tpot),
      Milliseconds(latencies.e2e), Escaped(record.error));
}

// Of a request that was due, but never sent: its intended time is all there is.
std::string UnsentLine(const Report& report, SteadyTime intended) {
  return absl::StrFormat("%s,,unsent,,,,,,,%s,,,,,,,,not sent before the end\n",
                         Escaped(report.name),
                         Milliseconds(Seconds(intended - report.result->started)));
}

}  // namespace

std::string CsvReport(const Session& session) {
  std::string out =
      "run,index,outcome,http_status,input_tokens,output_tokens,max_tokens,chunks,finish_reason,"
      "intended_ms,sent_ms,ended_ms,connect_ms,ttfc_ms,ttft_ms,tpot_ms,e2e_ms,error\n";
  for (const Report& report : session.reports) {
    for (const Record& record : report.result->records) {
      if (record.target == report.target) out += Line(report, record);
    }
    for (const SteadyTime intended : report.result->unsent) out += UnsentLine(report, intended);
  }
  return out;
}

}  // namespace weightless::loadtest
