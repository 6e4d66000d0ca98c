#include "absl/strings/str_format.h"
#include "common/concat.h"
#include "loadtest/report.h"
#include "loadtest/svg_chart.h"

namespace weightless::loadtest {
namespace {

constexpr size_t kHistogramBins = 60;
constexpr size_t kMaxTimelineBins = 120;

constexpr std::string_view kStyle = R"css(
:root { --ink: #1c2330; --soft: #5c6675; --rule: #d9dee6; --paper: #ffffff; --card: #f5f7fa;
  --c0: #2166ac; --c1: #d6604d; --c2: #1b7837; --c3: #8856a7; --c4: #bf812d; --c5: #35978f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --rule: #39424f;
  --paper: #14181f; --card: #1d232c; --c0: #6baed6; --c1: #f4a582; --c2: #7fbf7b; --c3: #c2a5cf;
  --c4: #dfc27d; --c5: #80cdc1; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.sub { color: var(--soft); margin: .2rem 0; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { background: var(--card); border-radius: 8px; padding: .5rem .9rem; min-width: 6.4rem; }
.card b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; white-space: nowrap; } th { color: var(--soft); font-weight: 600; }
td.text, th.text { text-align: left; color: var(--soft); }
.failed { color: #c0392b; font-weight: 700; } .passed { color: var(--c2); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 1rem; }
svg { box-sizing: border-box; width: 100%; height: auto; background: var(--card); border-radius: 8px; padding: 6px; }
.grid { stroke: var(--rule); } .tick { font-size: 11px; fill: var(--soft); }
.label { font-size: 11px; fill: var(--soft); } .title { font-size: 13px; font-weight: 600;
  fill: var(--ink); } .marker { stroke: var(--soft); stroke-dasharray: 3 3; }
.line { fill: none; stroke-width: 1.8; } .area { opacity: .25; stroke: none; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); } .line.c5 { stroke: var(--c5); }
.area.c0, .dot.c0, .swatch.c0 { fill: var(--c0); } .area.c1, .dot.c1, .swatch.c1 { fill: var(--c1); }
.area.c2, .dot.c2, .swatch.c2 { fill: var(--c2); } .area.c3, .dot.c3, .swatch.c3 { fill: var(--c3); }
.area.c4, .dot.c4, .swatch.c4 { fill: var(--c4); } .area.c5, .dot.c5, .swatch.c5 { fill: var(--c5); }
)css";

std::string Card(const std::string& value, const std::string& name) {
  return Concat("<div class=\"card\"><b>", HtmlEscape(value), "</b><span>", HtmlEscape(name),
                "</span></div>\n");
}

std::string Cards(const Session& session, const Summary& s) {
  std::string out = "<div class=\"cards\">\n";
  out += Card(absl::StrFormat("%.2f", s.PerSecond(s.completed)), "requests/s");
  if (session.config.slo.is_set()) {
    out += Card(absl::StrFormat("%.2f", s.PerSecond(s.good)), "requests/s within the SLO");
  }
  out += Card(absl::StrFormat("%.0f", s.PerSecond(s.output_tokens)), "output tokens/s");
  out += Card(absl::StrFormat("%.2f ms", s.ttft.p50 * 1e3), "TTFT p50");
  out += Card(absl::StrFormat("%.2f ms", s.ttft.p99 * 1e3), "TTFT p99");
  out += Card(absl::StrFormat("%.3f ms", s.tpot.p50 * 1e3), "TPOT p50");
  out += Card(absl::StrFormat("%d", s.completed), "completed");
  if (s.failed > 0) out += Card(absl::StrFormat("%d", s.failed), "failed");
  if (s.unsent > 0) out += Card(absl::StrFormat("%d", s.unsent), "never sent");
  if (s.cancelled > 0) out += Card(absl::StrFormat("%d", s.cancelled), "cancelled");
  out += Card(absl::StrFormat("%.2f s", s.duration_seconds), "duration");
  return out + "</div>\n";
}

std::string LatencyTable(const Summary& summary, bool is_open_loop) {
  std::string out =
      "<table><tr><th>ms</th><th>mean</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th>"
      "<th>max</th><th>count</th><th class=\"text\">what it is</th></tr>\n";
  for (const LatencyRow& row : LatencyRows(is_open_loop)) {
    const Distribution& d = summary.*row.distribution;
    if (d.count == 0) continue;
    out += absl::StrFormat(
        "<tr><td>%s</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td>"
        "<td>%.3f</td><td>%d</td><td class=\"text\">%s</td></tr>\n",
        row.name, d.mean * 1e3, d.p50 * 1e3, d.p90 * 1e3, d.p95 * 1e3, d.p99 * 1e3, d.max * 1e3,
        d.count, HtmlEscape(row.definition));
  }
  return out + "</table>\n";
}

std::string AuditTable(const std::vector<AuditCheck>& audit) {
  if (audit.empty()) return "";
  std::string out = "<h2>Audit</h2>\n<table>\n";
  for (const AuditCheck& check : audit) {
    const char* verdict = VerdictName(check.verdict);
    out += Concat("<tr><td>", check.name, "</td><td class=\"text\"><span class=\"", verdict, "\">",
                  verdict, "</span></td><td class=\"text\">", HtmlEscape(check.detail),
                  "</td></tr>\n");
  }
  return out + "</table>\n";
}

std::vector<double> InMilliseconds(std::vector<double> sample) {
  for (double& value : sample) value *= 1e3;
  return sample;
}

std::string DistributionChart(const char* name, const std::vector<double>& sample,
                              const Distribution& d) {
  if (sample.empty()) return "";
  return LineChart({.title = Concat(name, " distribution"),
                    .x_label = "ms",
                    .y_label = "count",
                    .series = {Histogram(InMilliseconds(sample), kHistogramBins)},
                    .markers = {{"p50", d.p50 * 1e3}, {"p95", d.p95 * 1e3}, {"p99", d.p99 * 1e3}}});
}

std::string Distributions(const Report& report) {
  const Summary& s = report.summary;
  return Concat("<h2>Distributions</h2>\n<div class=\"charts\">\n",
                DistributionChart("TTFT", report.samples.ttft, s.ttft),
                DistributionChart("TPOT", report.samples.tpot, s.tpot),
                DistributionChart("ITL", report.samples.itl, s.itl),
                DistributionChart("E2E", report.samples.e2e, s.e2e), "</div>\n");
}

Series Curve(std::string name, const std::vector<double>& values, double bin_seconds,
             double scale) {
  Series series{.name = std::move(name)};
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0) continue;
    series.points.emplace_back((static_cast<double>(i) + 0.5) * bin_seconds, values[i] * scale);
  }
  return series;
}

std::string TimelineCharts(const Report& report) {
  // Bins wider than a request, where the run is long enough, so that the waves of a closed loop do
  // not hide its course.
  const double bin_seconds = std::max(1.5 * report.summary.e2e.p50, 0.05);
  const size_t num_bins = std::clamp<size_t>(
      static_cast<size_t>(report.summary.duration_seconds / bin_seconds), 10, kMaxTimelineBins);
  const Timeline t = MakeTimeline(*report.result, report.target, num_bins);
  const auto chart = [&](const char* title, const char* unit, const std::vector<double>& values,
                         double scale) {
    return LineChart({.title = title,
                      .x_label = "s",
                      .y_label = unit,
                      .series = {Curve(title, values, t.bin_seconds, scale)},
                      .height = 180});
  };
  return Concat("<h2>Timeline</h2>\n<div class=\"charts\">\n",
                chart("Requests ended", "per second", t.requests_per_second, 1),
                chart("Output tokens", "per second", t.tokens_per_second, 1),
                chart("Requests running", "mean", t.running, 1),
                chart("TTFT by time of sending", "ms, mean", t.ttft, 1e3), "</div>\n");
}

Series SweepCurve(const Session& session, const char* name, Distribution Summary::*latency,
                  double Distribution::*statistic) {
  Series series{.name = name, .has_dots = true};
  for (const Report& report : session.reports) {
    const Summary& s = report.summary;
    series.points.emplace_back(s.PerSecond(s.completed), s.*latency.*statistic * 1e3);
    // The upper curve bears the labels.
    if (statistic == &Distribution::p99) {
      series.point_labels.push_back(absl::StrFormat("%g", report.sweep_point));
    }
  }
  return series;
}

std::string SweepCharts(const Session& session) {
  const char* axis = session.config.sweep == SweepKind::kRate ? "offered requests/s" : "streams";
  const std::string note = Concat("requests/s; the labels are ", axis);
  Series throughput{.name = "output tokens/s", .has_dots = true};
  for (const Report& report : session.reports) {
    throughput.points.emplace_back(report.sweep_point,
                                   report.summary.PerSecond(report.summary.output_tokens));
  }
  const auto chart = [&](const char* title, std::vector<Series> series) {
    return LineChart(
        {.title = title, .x_label = note, .y_label = "ms", .series = std::move(series)});
  };
  return Concat("<h2>Load against latency</h2>\n<div class=\"charts\">\n",
                chart("TTFT", {SweepCurve(session, "p50", &Summary::ttft, &Distribution::p50),
                               SweepCurve(session, "p99", &Summary::ttft, &Distribution::p99)}),
                chart("TPOT", {SweepCurve(session, "p50", &Summary::tpot, &Distribution::p50),
                               SweepCurve(session, "p99", &Summary::tpot, &Distribution::p99)}),
                chart("E2E", {SweepCurve(session, "p50", &Summary::e2e, &Distribution::p50),
                              SweepCurve(session, "p99", &Summary::e2e, &Distribution::p99)}),
                LineChart({.title = "Output tokens/s",
                           .x_label = axis,
                           .y_label = "tokens/s",
                           .series = {throughput}}),
                "</div>\n");
}

Series Cumulative(std::string name, std::vector<double> sample) {
  Series series{.name = std::move(name)};
  std::sort(sample.begin(), sample.end());
  for (int p = 0; p <= 99 && !sample.empty(); ++p) {
    series.points.emplace_back(Percentile(sample, p) * 1e3, p);
  }
  return series;
}

std::string ComparisonSection(const Session& session) {
  const Comparison& comparison = *session.comparison;
  std::string out = absl::StrFormat(
      "<h2>B against A</h2>\n<p class=\"sub\">%s; %s</p>\n<p class=\"sub\">%d pairs of the same "
      "prompt, sent in turn; 95 %% "
      "confidence intervals by bootstrap over the pairs. Below 1 is faster for latencies.</p>\n"
      "<table><tr><th></th><th>A</th><th>B</th><th>B / A</th><th>interval</th></tr>\n",
      HtmlEscape(session.reports[0].name), HtmlEscape(session.reports[1].name),
      comparison.num_pairs);
  for (const ComparisonRow& row : comparison.rows) {
    out += absl::StrFormat(
        "<tr><td>%s, %s</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f to %.3f</td></tr>\n",
        row.name, row.unit, row.a * row.scale, row.b * row.scale, row.ratio.value, row.ratio.low,
        row.ratio.high);
  }
  out += "</table>\n<div class=\"charts\" style=\"margin-top:1rem\">\n";
  const Samples& a = session.reports[0].samples;
  const Samples& b = session.reports[1].samples;
  const auto chart = [](const char* title, const std::vector<double>& of_a,
                        const std::vector<double>& of_b) {
    return LineChart({.title = title,
                      .x_label = "ms",
                      .y_label = "percentile",
                      .series = {Cumulative("A", of_a), Cumulative("B", of_b)}});
  };
  return Concat(out, chart("TTFT", a.ttft, b.ttft), chart("TPOT", a.tpot, b.tpot), "</div>\n");
}

std::string ReportSection(const Session& session, const Report& report) {
  const std::string failure = FirstFailure(report);
  const std::string unsent = UnsentNote(report.summary);
  return Concat(
      "<section>\n<h2>", HtmlEscape(report.name), session.was_interrupted ? " (interrupted)" : "",
      "</h2>\n", Cards(session, report.summary),
      failure.empty() ? "" : Concat("<p class=\"failed\">", HtmlEscape(failure), "</p>\n"),
      unsent.empty() ? "" : Concat("<p>", HtmlEscape(unsent), "</p>\n"),
      LatencyTable(report.summary, report.is_open_loop), AuditTable(report.audit),
      Distributions(report), TimelineCharts(report), "</section>\n");
}

// 20260102-030405 as 2026-01-02 03:04:05.
std::string ReadableDate(const std::string& date) {
  if (date.size() != 15) return date;
  return Concat(date.substr(0, 4), "-", date.substr(4, 2), "-", date.substr(6, 2), " ",
                date.substr(9, 2), ":", date.substr(11, 2), ":", date.substr(13, 2));
}

}  // namespace

std::string HtmlReport(const Session& session) {
  std::string out = Concat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      HtmlEscape(session.model), " - load test</title>\n<style>", kStyle,
      "</style></head>\n<body>\n<h1>", HtmlEscape(session.model), "</h1>\n<p class=\"sub\">",
      HtmlEscape(session.load), ", ",
      session.config.endpoint == Endpoint::kChat ? "chat" : "completions", ", ",
      ReadableDate(session.date), "</p>\n<p class=\"sub\">Prompts: ", HtmlEscape(session.prompts),
      "</p>\n");
  if (session.comparison && session.reports.size() == 2) out += ComparisonSection(session);
  if (session.config.sweep != SweepKind::kNone) out += SweepCharts(session);
  for (const Report& report : session.reports) out += ReportSection(session, report);
  return out + "</body></html>\n";
}

}  // namespace weightless::loadtest
