#include "common/vllm_metrics.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <vector>

namespace weightless {

namespace {

using Bounds = prometheus::Histogram::BucketBoundaries;

const Bounds& FirstTokenBounds() {
  static const auto& bounds =
      *new Bounds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25,  0.5,   0.75,
                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160.0, 640.0, 2560};
  return bounds;
}
const Bounds& TokenTimeBounds() {
  static const auto& bounds = *new Bounds{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
  return bounds;
}
const Bounds& RequestTimeBounds() {
  static const auto& bounds = *new Bounds{0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
  return bounds;
}
const Bounds& StepTokenBounds() {
  static const auto& bounds =
      *new Bounds{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  return bounds;
}
// 1, 2, 5, 10 ... beyond any context; Append cuts them off.
const Bounds& TokenCountBounds() {
  static const Bounds& bounds = *[] {
    auto* made = new Bounds;
    for (double decade = 1; decade < 1e8; decade *= 10) {
      for (const double digit : {1, 2, 5}) made->push_back(digit * decade);
    }
    return made;
  }();
  return bounds;
}

// The shortest decimal without an exponent, and never without a point: 1.0, 0.025.
std::string Decimal(double value) {
  std::array<char, 400> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string text(buffer.data(), end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

std::string Label(const char* name, std::string_view value) {
  return Concat(name, "=\"", Escaped(value), "\"");
}

// Writes families with the labels every one of them has.
class Writer {
 public:
  Writer(const VllmServed& served, std::string& out)
      : labels_(Concat(Label("engine", "0"), ",", Label("model_name", served.model_name))),
        max_count_(static_cast<double>(served.max_context)),
        out_(out) {}

  void Begin(const std::string& name, const char* type, const char* help) {
    name_ = name;
    out_ += Concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  // A sample of the family, `extra` being one more label or empty.
  void Sample(double value, const std::string& extra = {}) { Line("", extra, value); }

  void Gauge(const char* name, const prometheus::Gauge& gauge, const char* help) {
    Begin(name, "gauge", help);
    Sample(gauge.Value());
  }
  void Counter(const char* name, const prometheus::Counter& counter, const char* help) {
    Begin(name, "counter", help);
    Sample(counter.Value());
  }
  void Times(const char* name, const prometheus::Histogram& histogram, const char* help) {
    Buckets(name, histogram, help, HUGE_VAL);
  }
  // Of tokens of a request: boundaries up to the longest there can be.
  void Counts(const char* name, const prometheus::Histogram& histogram, const char* help) {
    Buckets(name, histogram, help, max_count_);
  }

 private:
  void Buckets(const char* name, const prometheus::Histogram& histogram, const char* help,
               double max_bound) {
    Begin(name, "histogram", help);
    const prometheus::ClientMetric::Histogram collected = histogram.Collect().histogram;
    for (const prometheus::ClientMetric::Bucket& bucket : collected.bucket) {
      if (std::isinf(bucket.upper_bound) || bucket.upper_bound > max_bound) continue;
      Line("_bucket", Label("le", Decimal(bucket.upper_bound)),
           static_cast<double>(bucket.cumulative_count));
    }
    const auto count = static_cast<double>(collected.sample_count);
    Line("_bucket", Label("le", "+Inf"), count);
    Line("_count", {}, count);
    Line("_sum", {}, collected.sample_sum);
  }
  void Line(const char* suffix, const std::string& extra, double value) {
    out_ += Concat(name_, suffix, "{", labels_, extra.empty() ? "" : ",", extra, "} ",
                   Decimal(value), "\n");
  }

  const std::string labels_;
  const double max_count_;
  std::string& out_;
  std::string name_;
};

void AppendState(const VllmMetrics& m, Writer& w) {
  w.Gauge("vllm:num_requests_running", m.requests_running, "Sequences on a worker.");
  w.Gauge("vllm:num_requests_waiting", m.requests_waiting, "Sequences waiting for a worker.");
  w.Begin("vllm:num_requests_waiting_by_reason", "gauge", "Waiting sequences by reason.");
  w.Sample(m.requests_waiting.Value(), Label("reason", "capacity"));
  w.Sample(0, Label("reason", "deferred"));
  w.Begin("vllm:engine_sleep_state", "gauge", "Always awake.");
  w.Sample(1, Label("sleep_state", "awake"));
  w.Sample(0, Label("sleep_state", "weights_offloaded"));
  w.Sample(0, Label("sleep_state", "discard_all"));
  w.Gauge("vllm:kv_cache_usage_perc", m.kv_cache_usage, "KV blocks in use, 1 = all.");
  w.Gauge("vllm:gpu_cache_usage_perc", m.kv_cache_usage, "Older name of kv_cache_usage_perc.");
}

void AppendCounters(const VllmMetrics& m, Writer& w) {
  w.Counter("vllm:prefix_cache_queries_total", m.prefix_cache_queries,
            "Prompt tokens looked up in the prefix cache.");
  w.Counter("vllm:prefix_cache_hits_total", m.prefix_cache_hits,
            "Prompt tokens found in the prefix cache.");
  w.Counter("vllm:gpu_prefix_cache_queries_total", m.prefix_cache_queries,
            "Older name of prefix_cache_queries_total.");
  w.Counter("vllm:gpu_prefix_cache_hits_total", m.prefix_cache_hits,
            "Older name of prefix_cache_hits_total.");
  w.Counter("vllm:num_preemptions_total", m.preemptions, "Preempted sequences.");
  w.Counter("vllm:prompt_tokens_total", m.prompt_tokens, "Prompt tokens prefilled.");
  w.Begin("vllm:prompt_tokens_by_source_total", "counter",
          "Prompt tokens by where they came from.");
  w.Sample(m.prompt_tokens_computed.Value(), Label("source", "local_compute"));
  w.Sample(m.prefix_cache_hits.Value(), Label("source", "local_cache_hit"));
  w.Sample(0, Label("source", "external_kv_transfer"));
  w.Counter("vllm:prompt_tokens_cached_total", m.prefix_cache_hits, "Cached prompt tokens.");
  w.Counter("vllm:generation_tokens_total", m.generation_tokens, "Output tokens.");
  w.Begin("vllm:request_success_total", "counter", "Ended requests by reason.");
  w.Sample(m.success_stop.Value(), Label("finished_reason", "stop"));
  w.Sample(m.success_length.Value(), Label("finished_reason", "length"));
  w.Sample(m.success_abort.Value(), Label("finished_reason", "abort"));
  w.Sample(m.success_error.Value(), Label("finished_reason", "error"));
  w.Sample(0, Label("finished_reason", "repetition"));
}

void AppendCounts(const VllmMetrics& m, Writer& w) {
  w.Counts("vllm:request_prompt_tokens", m.request_prompt_tokens, "Prompt tokens of a request.");
  w.Counts("vllm:request_generation_tokens", m.request_generation_tokens,
           "Output tokens of a request.");
  w.Times("vllm:iteration_tokens_total", m.iteration_tokens,
          "New prompt tokens and output tokens of a step.");
  w.Counts("vllm:request_max_num_generation_tokens", m.request_max_generation_tokens,
           "Output tokens of the longest choice of a request.");
  w.Times("vllm:request_params_n", m.request_n, "Choices asked for.");
  w.Counts("vllm:request_params_max_tokens", m.request_max_tokens, "max_tokens asked for.");
  w.Counts("vllm:request_prefill_kv_computed_tokens", m.request_computed_prompt_tokens,
           "Prompt tokens of a request that the prefix cache did not have.");
}

void AppendTimes(const VllmMetrics& m, Writer& w) {
  w.Times("vllm:time_to_first_token_seconds", m.time_to_first_token,
          "Request read to its first token.");
  w.Times("vllm:inter_token_latency_seconds", m.inter_token_latency, "Between two tokens.");
  w.Times("vllm:time_per_output_token_seconds", m.inter_token_latency,
          "Older name of inter_token_latency_seconds.");
  w.Times("vllm:request_time_per_output_token_seconds", m.time_per_output_token,
          "Mean time per token after the first.");
  w.Times("vllm:e2e_request_latency_seconds", m.e2e_latency, "Request read to its end.");
  w.Times("vllm:request_queue_time_seconds", m.queue_time, "Accepted to placed on a worker.");
  w.Times("vllm:request_inference_time_seconds", m.inference_time, "Placed to the last token.");
  w.Times("vllm:request_prefill_time_seconds", m.prefill_time, "Placed to the first token.");
  w.Times("vllm:request_decode_time_seconds", m.decode_time, "First token to the last.");
}

// Two families that say what the server can do; their labels are their own.
void AppendInfo(const VllmServed& served, std::string& out) {
  const std::string window =
      served.sliding_window > 0 ? std::to_string(served.sliding_window) : "None";
  out += Concat(
      "# HELP vllm:cache_config_info The KV cache, as labels.\n# TYPE vllm:cache_config_info "
      "gauge\nvllm:cache_config_info{",
      Label("block_size", std::to_string(served.block_size)), ",", Label("cache_dtype", "auto"),
      ",", Label("enable_prefix_caching", "True"), ",", Label("engine", "0"), ",",
      Label("kv_cache_size_tokens", std::to_string(served.block_size * served.num_blocks)), ",",
      Label("num_cpu_blocks", "0"), ",", Label("num_gpu_blocks", std::to_string(served.num_blocks)),
      ",", Label("num_gpu_blocks_override", "None"), ",", Label("sliding_window", window),
      "} 1.0\n");
  // The newest series counts for who reads it, so its value is the time.
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  out += Concat(
      "# HELP vllm:lora_requests_info There are no adapters.\n# TYPE vllm:lora_requests_info "
      "gauge\nvllm:lora_requests_info{",
      Label("max_lora", "0"), ",", Label("running_lora_adapters", ""), ",",
      Label("waiting_lora_adapters", ""), "} ", Decimal(now.count()), "\n");
}

}  // namespace

VllmMetrics::VllmMetrics()
    : request_prompt_tokens(TokenCountBounds()),
      request_generation_tokens(TokenCountBounds()),
      request_max_generation_tokens(TokenCountBounds()),
      request_max_tokens(TokenCountBounds()),
      request_n({1, 2, 5, 10, 20}),
      request_computed_prompt_tokens(TokenCountBounds()),
      iteration_tokens(StepTokenBounds()),
      time_to_first_token(FirstTokenBounds()),
      inter_token_latency(TokenTimeBounds()),
      time_per_output_token(TokenTimeBounds()),
      e2e_latency(RequestTimeBounds()),
      queue_time(RequestTimeBounds()),
      inference_time(RequestTimeBounds()),
      prefill_time(RequestTimeBounds()),
      decode_time(RequestTimeBounds()) {}

void VllmMetrics::Append(const VllmServed& served, std::string& out) const {
  Writer writer(served, out);
  AppendState(*this, writer);
  AppendCounters(*this, writer);
  AppendCounts(*this, writer);
  AppendTimes(*this, writer);
  AppendInfo(served, out);
}

}  // namespace weightless
