// Every metric of the system: its name, unit and labels are in metrics.cc and nowhere else. A
// process makes one set (RouterMetrics), hands it on by reference and answers /metrics with its
// Exposition().
#pragma once

#include <memory>
#include <string>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace weightless {

// Handles, copied freely; valid as long as the set they belong to. Thread-safe.
class Counter {
 public:
  explicit Counter(prometheus::Counter& impl) : impl_(&impl) {}
  void Add(double amount = 1);
  double value() const;

 private:
  prometheus::Counter* impl_;
};
class Gauge {
 public:
  explicit Gauge(prometheus::Gauge& impl) : impl_(&impl) {}
  void Set(double value);
  void Add(double amount);
  double value() const;

 private:
  prometheus::Gauge* impl_;
};
class Histogram {
 public:
  explicit Histogram(prometheus::Histogram& impl) : impl_(&impl) {}
  void Observe(double value);

 private:
  prometheus::Histogram* impl_;
};

// Of one replica, label `worker` (its address).
struct ReplicaMetrics {
  Gauge up;  // 1 while plans can be sent
  Gauge running_sequences;
  Gauge full_blocks, full_blocks_used, full_blocks_cached;  // KV pool of the full-attention layers
  Gauge sliding_blocks, sliding_blocks_used, sliding_blocks_cached;
  Counter steps;
  Histogram step_seconds;  // on the device
  Histogram batch_size;    // sequences in a step
  Counter plan_ahead_stalls;
  Counter losses;          // a ready worker was given up
  Counter refusals;        // it serves something else, or speaks another protocol
  Counter rejected_plans;  // INVALID_ARGUMENT from a worker: a defect of the router
};

// What a router counts. Thread-safe.
class RouterMetrics {
 private:
  std::shared_ptr<prometheus::Registry>
      registry_;  // shared with nobody: prometheus-cpp wants it so

 public:
  RouterMetrics();
  ~RouterMetrics();

  // The text format of Prometheus, version 0.0.4.
  std::string Exposition() const;

  ReplicaMetrics ForReplica(const std::string& address);

  // HTTP requests that generate: started = stop + length + tool_calls + error + aborted + running.
  Counter requests_started;
  Counter requests_stop, requests_length, requests_tool_calls, requests_error, requests_aborted;
  Gauge requests_running;
  Counter responses_2xx, responses_4xx, responses_5xx;  // HTTP responses of every route
  Counter unknown_fields;                               // in request bodies, ignored
  Gauge connections_open;
  Histogram ttft_seconds, tpot_seconds, itl_seconds, e2e_seconds;

  // Sequences and tokens; sums over choices.
  Gauge queued_sequences;   // accepted, waiting for a replica
  Gauge running_sequences;  // on a replica
  Histogram queue_seconds;  // accepted to placed on a replica for the first time
  Counter prompt_tokens;    // prefilled for the first time, or found in the prefix cache
  Counter cached_tokens;    // of these, found in the prefix cache
  Counter generated_tokens;
  Counter recomputed_tokens;  // prefilled again after a preemption or a worker loss
  Counter preemptions;
  Counter migrations;          // sequences put back because their worker was lost
  Counter poisoned_sequences;  // ended because they lost several workers in a row
  Counter expired_sequences;   // ended by their deadline
};

}  // namespace weightless
