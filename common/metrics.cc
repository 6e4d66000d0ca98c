#include "common/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string_view>

namespace weightless {

namespace {

using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

// From 0.1 ms, so that tokens of half a millisecond can be told apart, to a minute.
const Buckets& TokenBuckets() {
  static const auto& buckets =
      *new Buckets{0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005,
                   0.0075, 0.01,   0.015,  0.02,   0.03,    0.05,  0.075,  0.1,   0.15,  0.2,
                   0.3,    0.5,    0.75,   1,      2,       5,     10,     30,    60};
  return buckets;
}
const Buckets& RequestBuckets() {
  static const auto& buckets =
      *new Buckets{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5, 2,
                   3,     5,     8,     10,   15,   20,   30,  45,  60,  120, 300, 600, 1800};
  return buckets;
}
const Buckets& BatchBuckets() {
  static const auto& buckets = *new Buckets{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  return buckets;
}

Counter MakeCounter(prometheus::Registry& registry, const char* name, const char* help,
                    const Labels& labels = {}) {
  return Counter(prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels));
}
Gauge MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                const Labels& labels = {}) {
  return Gauge(prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels));
}
Histogram MakeHistogram(prometheus::Registry& registry, const char* name, const char* help,
                        const Buckets& buckets, const Labels& labels = {}) {
  return Histogram(
      prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets));
}

Counter MakeRequests(prometheus::Registry& registry, const char* outcome) {
  return MakeCounter(registry, "weightless_requests_total",
                     "Generation requests that ended, by outcome.", {{"outcome", outcome}});
}
Counter MakeResponses(prometheus::Registry& registry, const char* status_class) {
  return MakeCounter(registry, "weightless_http_responses_total",
                     "HTTP responses of every route, by class of status code.",
                     {{"class", status_class}});
}

Gauge MakeBlocks(prometheus::Registry& registry, const std::string& address, const char* pool,
                 std::string_view kind) {
  const Labels labels = {{"worker", address}, {"pool", pool}};
  if (kind == "used") {
    return MakeGauge(registry, "weightless_kv_blocks_used", "KV blocks that sequences hold.",
                     labels);
  }
  if (kind == "cached") {
    return MakeGauge(registry, "weightless_kv_blocks_cached",
                     "KV blocks held by no sequence that hold a findable prefix.", labels);
  }
  return MakeGauge(registry, "weightless_kv_blocks", "KV blocks of the pool.", labels);
}

}  // namespace

void Counter::Add(double amount) { impl_->Increment(amount); }
double Counter::value() const { return impl_->Value(); }
void Gauge::Set(double value) { impl_->Set(value); }
void Gauge::Add(double amount) { impl_->Increment(amount); }
double Gauge::value() const { return impl_->Value(); }
void Histogram::Observe(double value) { impl_->Observe(value); }

RouterMetrics::RouterMetrics()
    : registry_(
          std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)),
      requests_started(MakeCounter(*registry_, "weightless_requests_started_total",
                                   "Generation requests that passed validation and admission.")),
      requests_stop(MakeRequests(*registry_, "stop")),
      requests_length(MakeRequests(*registry_, "length")),
      requests_tool_calls(MakeRequests(*registry_, "tool_calls")),
      requests_error(MakeRequests(*registry_, "error")),
      requests_aborted(MakeRequests(*registry_, "aborted")),
      requests_running(MakeGauge(*registry_, "weightless_requests_running",
                                 "Generation requests that started and have not ended.")),
      responses_2xx(MakeResponses(*registry_, "2xx")),
      responses_4xx(MakeResponses(*registry_, "4xx")),
      responses_5xx(MakeResponses(*registry_, "5xx")),
      unknown_fields(MakeCounter(*registry_, "weightless_unknown_fields_total",
                                 "Fields of request bodies that are not known and were ignored.")),
      connections_open(
          MakeGauge(*registry_, "weightless_connections_open", "Open HTTP connections.")),
      ttft_seconds(MakeHistogram(*registry_, "weightless_ttft_seconds",
                                 "Request read to first content byte written.", RequestBuckets())),
      tpot_seconds(MakeHistogram(*registry_, "weightless_tpot_seconds",
                                 "Mean time per output token after the first, by choice.",
                                 TokenBuckets())),
      itl_seconds(MakeHistogram(*registry_, "weightless_itl_seconds",
                                "Time between two tokens of a choice.", TokenBuckets())),
      e2e_seconds(MakeHistogram(*registry_, "weightless_e2e_seconds", "Request read to its end.",
                                RequestBuckets())),
      queued_sequences(MakeGauge(*registry_, "weightless_queued_sequences",
                                 "Sequences accepted and waiting for a replica.")),
      running_sequences(MakeGauge(*registry_, "weightless_running_sequences",
                                  "Sequences on a replica, those in prefill included.")),
      queue_seconds(MakeHistogram(*registry_, "weightless_queue_seconds",
                                  "Accepted to placed on a replica for the first time.",
                                  RequestBuckets())),
      prompt_tokens(MakeCounter(*registry_, "weightless_prompt_tokens_total",
                                "Prompt tokens prefilled for the first time or found in the prefix "
                                "cache, summed over choices.")),
      cached_tokens(MakeCounter(*registry_, "weightless_cached_tokens_total",
                                "Prompt tokens found in the prefix cache.")),
      generated_tokens(MakeCounter(*registry_, "weightless_generated_tokens_total",
                                   "Tokens sampled and emitted, summed over choices.")),
      recomputed_tokens(MakeCounter(*registry_, "weightless_recomputed_tokens_total",
                                    "Tokens prefilled again after a preemption or a worker loss.")),
      preemptions(MakeCounter(*registry_, "weightless_preemptions_total",
                              "Sequences that gave their KV blocks back to be recomputed later.")),
      migrations(MakeCounter(*registry_, "weightless_migrations_total",
                             "Sequences put back to the queue because their worker was lost.")),
      poisoned_sequences(MakeCounter(*registry_, "weightless_poisoned_sequences_total",
                                     "Sequences ended because several workers in a row were lost "
                                     "while they ran.")),
      expired_sequences(MakeCounter(*registry_, "weightless_expired_sequences_total",
                                    "Sequences ended by their deadline.")) {}

RouterMetrics::~RouterMetrics() = default;

std::string RouterMetrics::Exposition() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

ReplicaMetrics RouterMetrics::ForReplica(const std::string& address) {
  prometheus::Registry& r = *registry_;
  const Labels labels = {{"worker", address}};
  return {
      .up =
          MakeGauge(r, "weightless_worker_up", "1 while plans can be sent to the worker.", labels),
      .running_sequences =
          MakeGauge(r, "weightless_worker_running_sequences", "Sequences on the replica.", labels),
      .full_blocks = MakeBlocks(r, address, "full", "all"),
      .full_blocks_used = MakeBlocks(r, address, "full", "used"),
      .full_blocks_cached = MakeBlocks(r, address, "full", "cached"),
      .sliding_blocks = MakeBlocks(r, address, "sliding", "all"),
      .sliding_blocks_used = MakeBlocks(r, address, "sliding", "used"),
      .sliding_blocks_cached = MakeBlocks(r, address, "sliding", "cached"),
      .steps = MakeCounter(r, "weightless_steps_total", "Steps whose result arrived.", labels),
      .step_seconds = MakeHistogram(r, "weightless_step_seconds", "Time of a step on the device.",
                                    TokenBuckets(), labels),
      .batch_size = MakeHistogram(r, "weightless_step_sequences", "Sequences in a step.",
                                  BatchBuckets(), labels),
      .plan_ahead_stalls = MakeCounter(
          r, "weightless_plan_ahead_stalls_total",
          "Steps that the worker could start only late: the plan was sent after, or less than one "
          "transit time (the least seen between sending a plan and its result, without its device "
          "time) before, the result of the step before it arrived, though it goes on with "
          "sequences "
          "that ran already.",
          labels),
      .losses = MakeCounter(r, "weightless_worker_losses_total",
                            "Times that a ready worker was given up.", labels),
      .refusals =
          MakeCounter(r, "weightless_worker_refusals_total",
                      "Times that a worker was refused: other weights, other protocol or an "
                      "impossible geometry.",
                      labels),
      .rejected_plans = MakeCounter(r, "weightless_rejected_plans_total",
                                    "Plans that a worker found to break the contract.", labels)};
}

}  // namespace weightless
