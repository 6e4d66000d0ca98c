#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "loadtest/report.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

json::object DistributionObject(const Distribution& d) {
  return {{"count", d.count},      {"mean_ms", d.mean * 1e3}, {"std_ms", d.std * 1e3},
          {"min_ms", d.min * 1e3}, {"p50_ms", d.p50 * 1e3},   {"p90_ms", d.p90 * 1e3},
          {"p95_ms", d.p95 * 1e3}, {"p99_ms", d.p99 * 1e3},   {"max_ms", d.max * 1e3}};
}

// The keys that vLLM's tool writes for one latency.
void PutLatency(const char* name, const Distribution& d, json::object& out) {
  out[Concat("mean_", name, "_ms")] = d.mean * 1e3;
  out[Concat("median_", name, "_ms")] = d.p50 * 1e3;
  out[Concat("std_", name, "_ms")] = d.std * 1e3;
  out[Concat("p50_", name, "_ms")] = d.p50 * 1e3;
  out[Concat("p90_", name, "_ms")] = d.p90 * 1e3;
  out[Concat("p95_", name, "_ms")] = d.p95 * 1e3;
  out[Concat("p99_", name, "_ms")] = d.p99 * 1e3;
}

void PutDetails(const Report& report, json::object& out) {
  json::array input_lens, output_lens, ttfts, itls, latencies, start_times, queue_times, texts,
      errors;
  for (const Record& record : report.result->records) {
    if (record.target != report.target) continue;
    const RequestLatencies values = LatenciesOf(record);
    json::array gaps;
    for (size_t i = 1; i < record.content.size(); ++i) {
      gaps.push_back(Seconds(record.content[i].when - record.content[i - 1].when));
    }
    input_lens.push_back(InputTokens(record));
    output_lens.push_back(record.outcome == Outcome::kCompleted ? OutputTokens(record) : 0);
    ttfts.push_back(values.ttft.value_or(0));
    itls.push_back(std::move(gaps));
    latencies.push_back(values.e2e);
    start_times.push_back(Seconds(record.sent - report.result->started));
    queue_times.push_back(Seconds(record.sent - record.intended));
    texts.push_back(json::string(record.text));
    errors.push_back(json::string(record.error));
  }
  out["input_lens"] = std::move(input_lens);
  out["output_lens"] = std::move(output_lens);
  out["ttfts"] = std::move(ttfts);
  out["itls"] = std::move(itls);
  out["latencies"] = std::move(latencies);
  out["start_times"] = std::move(start_times);
  out["queue_times"] = std::move(queue_times);
  out["generated_texts"] = std::move(texts);
  out["errors"] = std::move(errors);
}

json::array AuditArray(const std::vector<AuditCheck>& audit) {
  json::array out;
  for (const AuditCheck& check : audit) {
    out.push_back(
        {{"check", check.name}, {"verdict", VerdictName(check.verdict)}, {"detail", check.detail}});
  }
  return out;
}

json::object OwnObject(const Session& session, const Report& report) {
  const Summary& s = report.summary;
  json::object latencies;
  json::object definitions;
  for (const LatencyRow& row : LatencyRows(true)) {
    latencies[row.key] = DistributionObject(s.*row.distribution);
    definitions[row.key] = row.definition;
  }
  definitions["percentiles"] = "of the exact sample, linear between the nearest ranks";
  definitions["itl"] = "in the keys of vLLM: chunk_gap";
  definitions["unsent"] =
      "open loop: requests due, but not sent before the end; ttft_intended and e2e_intended lack "
      "them";
  const GeneratorLoad& load = report.result->load;
  return {{"name", report.name},
          {"url", report.url},
          {"load", session.load},
          {"prompts", session.prompts},
          {"seed", session.config.seed},
          {"was_interrupted", session.was_interrupted},
          {"cancelled", s.cancelled},
          {"unsent", s.unsent},
          {"chunks", s.chunks},
          {"cached_input_tokens", s.cached_tokens},
          {"tokens_counted_by", s.token_source},
          {"generator_cpu_share", load.cpu_share()},
          {"generator_lag", DistributionObject(Describe(load.lags))},
          {"latencies", std::move(latencies)},
          {"audit", AuditArray(report.audit)},
          {"audit_passed", !HasFailure(report.audit)},
          {"definitions", std::move(definitions)}};
}

void PutHead(const Session& session, const Report& report, json::object& out) {
  const ArrivalConfig& arrivals = session.config.arrivals;
  const bool is_chat = session.config.endpoint == Endpoint::kChat;
  out["date"] = session.date;
  out["endpoint_type"] = is_chat ? "openai-chat" : "openai";
  out["backend"] = is_chat ? "openai-chat" : "openai";
  out["label"] =
      session.config.label.empty() ? json::value(nullptr) : json::value(session.config.label);
  out["model_id"] = session.model;
  out["tokenizer_id"] =
      session.config.dataset.tokenizer.empty() ? report.url : session.config.dataset.tokenizer;
  out["num_prompts"] = report.summary.completed + report.summary.failed + report.summary.cancelled;
  out["request_rate"] = report.rate ? json::value(*report.rate) : json::value("inf");
  out["burstiness"] = arrivals.burstiness;
  out["max_concurrency"] =
      report.concurrency > 0 ? json::value(report.concurrency) : json::value(nullptr);
  if (arrivals.ramp != RampKind::kNone) {
    out["ramp_up_strategy"] = arrivals.ramp == RampKind::kLinear ? "linear" : "exponential";
    out["ramp_up_start_rps"] = arrivals.ramp_start_rate;
    out["ramp_up_end_rps"] = arrivals.ramp_end_rate;
  }
}

json::object RunObject(const Session& session, const Report& report) {
  const Summary& s = report.summary;
  json::object out;
  PutHead(session, report, out);
  out["duration"] = s.duration_seconds;
  out["completed"] = s.completed;
  out["failed"] = s.failed;
  out["total_input_tokens"] = s.input_tokens;
  out["total_output_tokens"] = s.output_tokens;
  out["request_throughput"] = s.PerSecond(s.completed);
  out["request_goodput"] =
      session.config.slo.is_set() ? json::value(s.PerSecond(s.good)) : json::value(nullptr);
  out["output_throughput"] = s.PerSecond(s.output_tokens);
  out["total_token_throughput"] = s.PerSecond(s.input_tokens + s.output_tokens);
  out["max_output_tokens_per_s"] = s.max_output_tokens_per_second;
  out["max_concurrent_requests"] = s.max_concurrency;
  out["rtfx"] = 0.0;
  PutLatency("ttft", s.ttft, out);
  PutLatency("tpot", s.tpot, out);
  PutLatency("itl", s.chunk_gap, out);
  PutLatency("e2el", s.e2e, out);
  PutLatency("client_queue_time", s.delay, out);
  if (session.config.saves_detailed) PutDetails(report, out);
  out["loadtest"] = OwnObject(session, report);
  return out;
}

json::object ComparisonObject(const Comparison& comparison) {
  json::array rows;
  for (const ComparisonRow& row : comparison.rows) {
    rows.push_back({{"name", row.name},
                    {"unit", row.unit},
                    {"a", row.a * row.scale},
                    {"b", row.b * row.scale},
                    {"ratio", row.ratio.value},
                    {"ratio_low", row.ratio.low},
                    {"ratio_high", row.ratio.high}});
  }
  return {{"num_pairs", comparison.num_pairs}, {"confidence", 0.95}, {"rows", std::move(rows)}};
}

}  // namespace

std::string JsonReport(const Session& session) {
  json::object out;
  if (!session.reports.empty()) out = RunObject(session, session.reports.back());
  if (session.reports.size() > 1) {
    json::array runs;
    for (const Report& report : session.reports) runs.push_back(RunObject(session, report));
    out["runs"] = std::move(runs);
  }
  if (session.comparison) out["comparison"] = ComparisonObject(*session.comparison);
  return json::serialize(out) + "\n";
}

}  // namespace weightless::loadtest
