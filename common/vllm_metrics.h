// The metrics of a vLLM server (its V1 engine) that mean something here: exact names, types, labels
// and buckets, so that dashboards, autoscalers and the scorers of the Kubernetes Gateway API
// inference extension that were made for vLLM work as they are. The router as a whole is what they
// take for engine "0". Included by common/metrics.cc only.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <string>

#include "common/worker_facts.h"

namespace weightless {

// Of the served model, known when its first worker is.
struct VllmServed {
  std::string model_name;
  uint64_t block_size = 0;
  uint64_t num_blocks = 0;  // of the full-attention layers, all workers
  uint64_t sliding_window = 0;
  uint64_t max_context = 0;
};

// Thread-safe.
struct VllmMetrics {
  VllmMetrics();

  // Appends the text format. Boundaries are written as the Python client does (le="1.0"), and those
  // of token counts end at max_context.
  void Append(const VllmServed& served, std::string& out) const;

  prometheus::Gauge requests_running, requests_waiting, kv_cache_usage;
  prometheus::Counter prefix_cache_queries, prefix_cache_hits, preemptions;
  prometheus::Counter prompt_tokens, prompt_tokens_computed, generation_tokens;
  prometheus::Counter success_stop, success_length, success_abort, success_error;
  prometheus::Histogram request_prompt_tokens, request_generation_tokens;
  prometheus::Histogram request_max_generation_tokens, request_max_tokens, request_n;
  prometheus::Histogram request_computed_prompt_tokens, iteration_tokens;
  prometheus::Histogram time_to_first_token, inter_token_latency, time_per_output_token;
  prometheus::Histogram e2e_latency, queue_time, inference_time, prefill_time, decode_time;
};

}  // namespace weightless
