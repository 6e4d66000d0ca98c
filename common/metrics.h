// Every metric of the system: its name, unit and labels are in common/*metrics*.cc and nowhere
// else. A process makes one set (RouterMetrics; a worker WorkerMetrics, worker_metrics.h), hands it
// on by reference and answers /metrics with it. docs/metrics.md lists them and the laws they obey.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace weightless {

struct WorkerFacts;

// Handles, copied freely; valid as long as the set they belong to. Thread-safe. Some have a second
// metric under another server's name, some (null `impl`) have nothing else.
class Counter {
 public:
  explicit Counter(prometheus::Counter* impl, prometheus::Counter* alias = nullptr)
      : impl_(impl), alias_(alias) {}
  void Add(double amount = 1);
  double value() const;

 private:
  prometheus::Counter* impl_;
  prometheus::Counter* alias_;
};
class Gauge {
 public:
  explicit Gauge(prometheus::Gauge* impl, prometheus::Gauge* alias = nullptr)
      : impl_(impl), alias_(alias) {}
  void Set(double value);
  void Add(double amount);
  double value() const;

 private:
  prometheus::Gauge* impl_;
  prometheus::Gauge* alias_;
};
class Histogram {
 public:
  explicit Histogram(prometheus::Histogram* impl, prometheus::Histogram* alias = nullptr)
      : impl_(impl), alias_(alias) {}
  void Observe(double value);

 private:
  prometheus::Histogram* impl_;
  prometheus::Histogram* alias_;
};

// Of one replica, label `worker` (its address).
struct ReplicaMetrics {
  Gauge up;  // 1 while plans can be sent
  Gauge running_sequences;
  Gauge full_blocks, full_blocks_used, full_blocks_cached;  // KV pool of the full-attention layers
  Gauge sliding_blocks, sliding_blocks_used, sliding_blocks_cached;
  Counter steps;
  Counter sampled_tokens;  // for sequences it still held, also those past a stop string
  Histogram step_seconds;  // on the device
  Histogram batch_size;    // sequences in a step
  Histogram step_tokens;   // new prompt tokens and output tokens of a step
  Counter plan_ahead_stalls;
  Counter losses;          // a ready worker was given up
  Counter refusals;        // it serves something else, or speaks another protocol
  Counter rejected_plans;  // INVALID_ARGUMENT from a worker: a defect of the router
};

struct MetricsOptions {
  bool vllm_names = true;         // also under vLLM's names, for its dashboards and scalers
  std::string served_model_name;  // label model_name of those; empty: the model's own
  absl::Duration keep_counts = absl::Minutes(15);  // of a replica that was removed
};

// HTTP requests that generate, and HTTP at large.
struct RequestMetrics {
  // started = stop + length + tool_calls + error + aborted + running
  Counter requests_started;
  Counter requests_stop, requests_length, requests_tool_calls, requests_error, requests_aborted;
  Gauge requests_running;
  Counter responses_2xx, responses_4xx, responses_5xx;  // HTTP responses of every route
  // Refused before they started; a 4xx or 5xx response each.
  Counter refused_api_key;             // 401
  Counter refused_requests_under_way;  // 429, of the limits per key
  Counter refused_requests_per_minute, refused_tokens_per_minute;
  Counter refused_overloaded;  // 503
  Counter unknown_fields;      // in request bodies, ignored
  Gauge connections_open;
  Histogram ttft_seconds, tpot_seconds, itl_seconds, e2e_seconds;
  Histogram prepare_seconds;  // request read to its sequences queued
  Histogram deliver_seconds;  // a step's result arrived to the bytes of its oldest token written
  // Of a request, over all choices; observed when it has ended, however it did.
  Histogram request_prompt_tokens, request_output_tokens;
};

// Sequences and tokens; sums over choices.
struct SequenceMetrics {
  Gauge queued_sequences;         // accepted, waiting for a replica
  Gauge running_sequences;        // on a replica
  Gauge kv_used_ratio;            // of the fuller pool, over all replicas
  Histogram queue_seconds;        // accepted to placed on a replica for the first time
  Histogram prefill_seconds;      // placed to the first token
  Counter prompt_tokens;          // prefilled for the first time, or found in the prefix cache
  Counter prefix_queried_tokens;  // looked up in the prefix cache
  Counter cached_tokens;          // of these, found
  Counter generated_tokens;       // that answers consist of, as usage counts them
  Counter recomputed_tokens;      // prefilled again after a preemption or a worker loss
  Counter preemptions;
  Counter migrations;          // sequences put back because their worker was lost
  Counter poisoned_sequences;  // ended because they lost several workers in a row
  Counter expired_sequences;   // ended by their deadline
};

// What only vLLM's names show.
struct VllmOnlyMetrics {
  Histogram ttft_seconds;            // request read to its first token, streamed or not
  Histogram decode_seconds;          // first token to last, by choice
  Histogram inference_seconds;       // placed to last token, by choice
  Histogram choices;                 // n
  Histogram max_tokens;              // as asked for
  Histogram longest_output_tokens;   // of the request's choices
  Histogram computed_prompt_tokens;  // not found in the prefix cache
  Counter prompt_tokens_computed;    // likewise, when placed
};

// Holds what the handles point into, and is made before them.
class RouterMetricsStore {
 protected:
  struct Impl;
  explicit RouterMetricsStore(const MetricsOptions& options);
  ~RouterMetricsStore();

  std::unique_ptr<Impl> impl_;
};

// What a router counts. Thread-safe.
class RouterMetrics : private RouterMetricsStore, public RequestMetrics, public SequenceMetrics {
 public:
  explicit RouterMetrics(const MetricsOptions& options = {});

  // The text format of Prometheus, version 0.0.4.
  std::string Exposition() const;

  ReplicaMetrics ForReplica(const std::string& address);
  // The replica is gone for good, and its handles must not be used any more. Its gauges disappear
  // at once, its counters and histograms keep_counts later: what it counted last is still scraped,
  // and goes on from there when the address comes back before.
  void RemoveReplica(const std::string& address);

  // Shows what a worker that is ready says about itself, instead of what it said before. The first
  // one ever defines the variant that is served.
  void Describe(const std::string& address, const WorkerFacts& facts);
  // It is ready no more: its facts disappear.
  void Forget(const std::string& address);

  VllmOnlyMetrics vllm;
};

}  // namespace weightless
