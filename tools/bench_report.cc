#include "tools/bench_report.h"

#include <boost/json.hpp>

#include "absl/strings/str_format.h"

namespace weightless::tools {
namespace {

// Bytes per second of one decode step.
double StepRate(const BenchRow& row) { return static_cast<double>(row.step_bytes) / row.step_s; }

}  // namespace

std::string FormatTable(const BenchReport& report) {
  std::string text = absl::StrFormat("%s, %s on %s, median of %d\n\n", report.model,
                                     report.numerics, report.device, report.repeats);
  text += absl::StrFormat("%-8s %6s %8s %11s %12s %10s %8s %10s %7s\n", "phase", "batch", "context",
                          "ms", "tokens/s", "MB/step", "GB/s", "read GB/s", "share");
  for (const BenchRow& row : report.rows) {
    text += absl::StrFormat("%-8s %6d %8d %11.3f %12.1f", row.phase, row.batch, row.context,
                            row.step_s * 1e3, row.tokens_per_s);
    if (row.step_bytes > 0) {
      text += absl::StrFormat(" %10.1f %8.1f %10.1f %5.0f %%",
                              static_cast<double>(row.step_bytes) / 1e6, StepRate(row) / 1e9,
                              row.read_rate / 1e9, 100 * StepRate(row) / row.read_rate);
    }
    text += "\n";
  }
  return text;
}

std::string FormatJson(const BenchReport& report) {
  boost::json::array rows;
  for (const BenchRow& row : report.rows) {
    boost::json::object object = {{"phase", row.phase},
                                  {"batch", row.batch},
                                  {"context", row.context},
                                  {"seconds", row.step_s},
                                  {"tokens_per_second", row.tokens_per_s}};
    if (row.step_bytes > 0) {
      object["step_bytes"] = row.step_bytes;
      object["bytes_per_second"] = StepRate(row);
      object["read_bytes_per_second"] = row.read_rate;
      object["fraction_of_read_rate"] = StepRate(row) / row.read_rate;
    }
    rows.push_back(std::move(object));
  }
  return boost::json::serialize(boost::json::object{{"model", report.model},
                                                    {"numerics", report.numerics},
                                                    {"device", report.device},
                                                    {"threads", report.threads},
                                                    {"repeats", report.repeats},
                                                    {"rows", std::move(rows)}}) +
         "\n";
}

}  // namespace weightless::tools
