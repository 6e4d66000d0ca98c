#include "common/metrics.h"

#include <prometheus/text_serializer.h>

#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/metric_registry.h"
#include "common/vllm_metrics.h"

namespace weightless {

namespace {

using Labels = prometheus::Labels;
using Registry = prometheus::Registry;

// Makes handles, each with its second metric when vLLM's names are exported.
struct Maker {
  Registry& registry;
  VllmMetrics* vllm;  // or null

  // Take away again what has been made.
  std::vector<std::function<void()>> level_removers, count_removers;

  template <typename Builder, typename... Args>
  auto* Add(Builder builder, const char* name, const char* help, const Labels& labels,
            const Args&... args) {
    auto& family = builder.Name(name).Help(help).Register(registry);
    auto& metric = family.Add(labels, args...);
    constexpr bool kIsLevel = std::is_same_v<decltype(metric), prometheus::Gauge&>;
    (kIsLevel ? level_removers : count_removers).push_back([&family, &metric] {
      family.Remove(&metric);
    });
    return &metric;
  }
  template <typename Metric>
  Metric* Find(Metric VllmMetrics::*alias) {
    return vllm == nullptr || alias == nullptr ? nullptr : &(vllm->*alias);
  }

  Counter Count(const char* name, const char* help,
                prometheus::Counter VllmMetrics::*alias = nullptr, const Labels& labels = {}) {
    return Counter(Add(prometheus::BuildCounter(), name, help, labels), Find(alias));
  }
  Gauge Level(const char* name, const char* help, prometheus::Gauge VllmMetrics::*alias = nullptr,
              const Labels& labels = {}) {
    return Gauge(Add(prometheus::BuildGauge(), name, help, labels), Find(alias));
  }
  Histogram Spread(const char* name, const char* help, const Buckets& buckets,
                   prometheus::Histogram VllmMetrics::*alias = nullptr, const Labels& labels = {}) {
    return Histogram(Add(prometheus::BuildHistogram(), name, help, labels, buckets), Find(alias));
  }

  Counter Requests(const char* outcome, prometheus::Counter VllmMetrics::*alias) {
    return Count("weightless_requests_total", "Generation requests that ended, by outcome.", alias,
                 {{"outcome", outcome}});
  }
  Counter Responses(const char* status_class) {
    return Count("weightless_http_responses_total",
                 "HTTP responses of every route, by class of status code.", nullptr,
                 {{"class", status_class}});
  }
  Counter Refused(const char* reason) {
    return Count("weightless_refused_requests_total",
                 "HTTP requests that a key, a limit of their key or a full server kept out.",
                 nullptr, {{"reason", reason}});
  }
  Histogram Added(const char* stage) {
    return Spread("weightless_router_added_seconds",
                  "Time that the router itself adds. prepare: request read to its sequences "
                  "queued; deliver: a step's result arrived to its bytes written.",
                  TokenTimeBuckets(), nullptr, {{"stage", stage}});
  }
  Gauge Blocks(const char* name, const char* help, const std::string& address, const char* pool) {
    return Level(name, help, nullptr, {{"worker", address}, {"pool", pool}});
  }
};

RequestMetrics MakeRequestMetrics(Maker& make) {
  return {
      .requests_started = make.Count("weightless_requests_started_total",
                                     "Generation requests that passed validation and admission."),
      .requests_stop = make.Requests("stop", &VllmMetrics::success_stop),
      .requests_length = make.Requests("length", &VllmMetrics::success_length),
      .requests_tool_calls = make.Requests("tool_calls", &VllmMetrics::success_stop),
      .requests_error = make.Requests("error", &VllmMetrics::success_error),
      .requests_aborted = make.Requests("aborted", &VllmMetrics::success_abort),
      .requests_running = make.Level("weightless_requests_running",
                                     "Generation requests that started and have not ended."),
      .responses_2xx = make.Responses("2xx"),
      .responses_4xx = make.Responses("4xx"),
      .responses_5xx = make.Responses("5xx"),
      .refused_api_key = make.Refused("invalid_api_key"),
      .refused_requests_under_way = make.Refused("requests_under_way"),
      .refused_requests_per_minute = make.Refused("requests_per_minute"),
      .refused_tokens_per_minute = make.Refused("tokens_per_minute"),
      .refused_overloaded = make.Refused("overloaded"),
      .unknown_fields = make.Count("weightless_unknown_fields_total",
                                   "Fields of request bodies that are not known and were ignored."),
      .connections_open = make.Level("weightless_connections_open", "Open HTTP connections."),
      .ttft_seconds =
          make.Spread("weightless_ttft_seconds", "Request read to first content byte written.",
                      RequestTimeBuckets()),
      .tpot_seconds = make.Spread("weightless_tpot_seconds",
                                  "Mean time per output token after the first, by choice.",
                                  TokenTimeBuckets(), &VllmMetrics::time_per_output_token),
      .itl_seconds = make.Spread("weightless_itl_seconds", "Time between two tokens of a choice.",
                                 TokenTimeBuckets(), &VllmMetrics::inter_token_latency),
      .e2e_seconds = make.Spread("weightless_e2e_seconds", "Request read to its end.",
                                 RequestTimeBuckets(), &VllmMetrics::e2e_latency),
      .prepare_seconds = make.Added("prepare"),
      .deliver_seconds = make.Added("deliver"),
      .request_prompt_tokens =
          make.Spread("weightless_request_prompt_tokens", "Prompt tokens of a request that ended.",
                      TokenCountBuckets(), &VllmMetrics::request_prompt_tokens),
      .request_output_tokens =
          make.Spread("weightless_request_output_tokens", "Output tokens of a request that ended.",
                      TokenCountBuckets(), &VllmMetrics::request_generation_tokens)};
}

SequenceMetrics MakeSequenceMetrics(Maker& make) {
  return {
      .queued_sequences =
          make.Level("weightless_queued_sequences", "Sequences accepted and waiting for a replica.",
                     &VllmMetrics::requests_waiting),
      .running_sequences = make.Level("weightless_running_sequences",
                                      "Sequences on a replica, those in prefill included.",
                                      &VllmMetrics::requests_running),
      .kv_used_ratio =
          make.Level("weightless_kv_used_ratio",
                     "KV blocks that sequences hold, of all blocks of the fuller pool; 1 = all.",
                     &VllmMetrics::kv_cache_usage),
      .queue_seconds = make.Spread("weightless_queue_seconds",
                                   "Accepted to placed on a replica for the first time.",
                                   RequestTimeBuckets(), &VllmMetrics::queue_time),
      .prefill_seconds = make.Spread("weightless_prefill_seconds",
                                     "Placed on a replica to the first token, by choice.",
                                     RequestTimeBuckets(), &VllmMetrics::prefill_time),
      .prompt_tokens =
          make.Count("weightless_prompt_tokens_total",
                     "Prompt tokens prefilled for the first time or found in the prefix "
                     "cache, summed over choices.",
                     &VllmMetrics::prompt_tokens),
      .prefix_queried_tokens = make.Count("weightless_prefix_queried_tokens_total",
                                          "Prompt tokens looked up in the prefix cache.",
                                          &VllmMetrics::prefix_cache_queries),
      .cached_tokens =
          make.Count("weightless_cached_tokens_total", "Prompt tokens found in the prefix cache.",
                     &VllmMetrics::prefix_cache_hits),
      .generated_tokens = make.Count("weightless_generated_tokens_total",
                                     "Output tokens of answers, as usage counts them.",
                                     &VllmMetrics::generation_tokens),
      .recomputed_tokens =
          make.Count("weightless_recomputed_tokens_total",
                     "Tokens prefilled again after a preemption or a worker loss."),
      .preemptions = make.Count("weightless_preemptions_total",
                                "Sequences that gave their KV blocks back to be recomputed later.",
                                &VllmMetrics::preemptions),
      .migrations = make.Count("weightless_migrations_total",
                               "Sequences put back to the queue because their worker was lost."),
      .poisoned_sequences = make.Count("weightless_poisoned_sequences_total",
                                       "Sequences ended because several workers in a row were "
                                       "lost while they ran."),
      .expired_sequences =
          make.Count("weightless_expired_sequences_total", "Sequences ended by their deadline.")};
}

VllmOnlyMetrics MakeVllmOnly(Maker& make) {
  return {
      .ttft_seconds = Histogram(nullptr, make.Find(&VllmMetrics::time_to_first_token)),
      .decode_seconds = Histogram(nullptr, make.Find(&VllmMetrics::decode_time)),
      .inference_seconds = Histogram(nullptr, make.Find(&VllmMetrics::inference_time)),
      .choices = Histogram(nullptr, make.Find(&VllmMetrics::request_n)),
      .max_tokens = Histogram(nullptr, make.Find(&VllmMetrics::request_max_tokens)),
      .longest_output_tokens =
          Histogram(nullptr, make.Find(&VllmMetrics::request_max_generation_tokens)),
      .computed_prompt_tokens =
          Histogram(nullptr, make.Find(&VllmMetrics::request_computed_prompt_tokens)),
      .prompt_tokens_computed = Counter(nullptr, make.Find(&VllmMetrics::prompt_tokens_computed))};
}

}  // namespace

void Counter::Add(double amount) {
  if (impl_ != nullptr) impl_->Increment(amount);
  if (alias_ != nullptr) alias_->Increment(amount);
}
double Counter::value() const {
  CHECK(impl_ != nullptr);
  return impl_->Value();
}
void Gauge::Set(double value) {
  if (impl_ != nullptr) impl_->Set(value);
  if (alias_ != nullptr) alias_->Set(value);
}
void Gauge::Add(double amount) {
  if (impl_ != nullptr) impl_->Increment(amount);
  if (alias_ != nullptr) alias_->Increment(amount);
}
double Gauge::value() const {
  CHECK(impl_ != nullptr);
  return impl_->Value();
}
void Histogram::Observe(double value) {
  if (impl_ != nullptr) impl_->Observe(value);
  if (alias_ != nullptr) alias_->Observe(value);
}

struct RouterMetricsStore::Impl {
  explicit Impl(MetricsOptions metrics_options)
      : options(std::move(metrics_options)),
        vllm(options.vllm_names ? std::make_unique<VllmMetrics>() : nullptr) {}

  const MetricsOptions options;
  Registry registry{Registry::InsertBehavior::Merge};
  const std::unique_ptr<VllmMetrics> vllm;
  Maker make{registry, vllm.get(), {}, {}};

  // Facts of workers come and go with their label sets.
  using GaugeFamily = prometheus::Family<prometheus::Gauge>;
  GaugeFamily& info =
      MakeFamily("weightless_worker_info", "1 for a worker that is ready; what it is, as labels.");
  GaugeFamily& variant =
      MakeFamily("weightless_variant_info", "1; what this router serves, as labels.");
  GaugeFamily& memory = MakeFamily("weightless_memory_bytes",
                                   "Device memory of a worker by class of use: its ledger.");
  GaugeFamily& allocated =
      MakeFamily("weightless_memory_allocated_bytes",
                 "Device memory a worker has taken, as the device's allocator counts it.");
  GaugeFamily& total = MakeFamily("weightless_memory_total_bytes", "Memory of a worker's device.");

  struct Fact {
    GaugeFamily* family;
    prometheus::Gauge* gauge;
  };
  mutable absl::Mutex mutex;
  std::map<std::string, std::vector<Fact>> facts ABSL_GUARDED_BY(mutex);  // by address
  struct Removers {
    std::vector<std::function<void()>> levels, counts;
    absl::Time gone_at = absl::InfiniteFuture();  // when the counts go, too
  };
  std::map<std::string, Removers> removers ABSL_GUARDED_BY(mutex);    // by address
  std::map<std::string, uint64_t> num_blocks ABSL_GUARDED_BY(mutex);  // of ready workers
  std::optional<VllmServed> served ABSL_GUARDED_BY(mutex);

  GaugeFamily& MakeFamily(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  void Forget(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const Fact& fact : facts[address]) fact.family->Remove(fact.gauge);
    facts.erase(address);
    num_blocks.erase(address);
  }
  void RemoveGone(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::erase_if(removers, [&](const auto& entry) {
      const bool gone = entry.second.gone_at <= now;
      if (gone) Run(entry.second.counts);
      return gone;
    });
  }
  static void Run(const std::vector<std::function<void()>>& all) {
    for (const auto& one : all) one();
  }
};

RouterMetricsStore::RouterMetricsStore(const MetricsOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
RouterMetricsStore::~RouterMetricsStore() = default;

RouterMetrics::RouterMetrics(const MetricsOptions& options)
    : RouterMetricsStore(options),
      RequestMetrics(MakeRequestMetrics(impl_->make)),
      SequenceMetrics(MakeSequenceMetrics(impl_->make)),
      vllm(MakeVllmOnly(impl_->make)) {
  AddBuildInfo(impl_->registry);
}

std::string RouterMetrics::Exposition() const {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->RemoveGone(absl::Now());
  }
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::vector<prometheus::MetricFamily> process = CollectProcess();
  std::move(process.begin(), process.end(), std::back_inserter(families));
  std::string text = prometheus::TextSerializer().Serialize(families);
  if (impl_->vllm == nullptr) return text;
  absl::MutexLock lock(&impl_->mutex);
  if (!impl_->served.has_value()) return text;
  VllmServed served = *impl_->served;
  for (const auto& [address, num_blocks] : impl_->num_blocks) served.num_blocks += num_blocks;
  impl_->vllm->Append(served, text);
  return text;
}

void RouterMetrics::Describe(const std::string& address, const WorkerFacts& facts) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Forget(address);
  Labels labels = VariantLabels(facts);
  if (!impl_->served.has_value()) {
    impl_->variant.Add(labels).Set(1);
    const std::string& name = impl_->options.served_model_name;
    impl_->served = VllmServed{.model_name = name.empty() ? facts.model : name,
                               .block_size = facts.block_size,
                               .sliding_window = facts.sliding_window,
                               .max_context = facts.max_context};
  }
  std::vector<Impl::Fact>& added = impl_->facts[address];
  const auto add = [&](Impl::GaugeFamily& family, const Labels& of, double value) {
    prometheus::Gauge& gauge = family.Add(of);
    gauge.Set(value);
    added.push_back({&family, &gauge});
  };
  for (const auto& [kind, size_bytes] : facts.memory) {
    add(impl_->memory, {{"worker", address}, {"class", kind}}, static_cast<double>(size_bytes));
  }
  const Labels worker = {{"worker", address}};
  add(impl_->allocated, worker, static_cast<double>(facts.memory_allocated_bytes));
  add(impl_->total, worker, static_cast<double>(facts.memory_total_bytes));
  labels.insert(
      {{"worker", address}, {"device_name", facts.device_name}, {"version", facts.version}});
  add(impl_->info, labels, 1);
  impl_->num_blocks[address] = facts.num_full_blocks;
}

void RouterMetrics::Forget(const std::string& address) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Forget(address);
}

void RouterMetrics::RemoveReplica(const std::string& address) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Forget(address);
  Impl::Removers& removers = impl_->removers[address];
  Impl::Run(std::exchange(removers.levels, {}));
  removers.gone_at = absl::Now() + impl_->options.keep_counts;
  impl_->RemoveGone(absl::Now());
}

ReplicaMetrics RouterMetrics::ForReplica(const std::string& address) {
  absl::MutexLock lock(&impl_->mutex);
  Maker make{impl_->registry, impl_->vllm.get(), {}, {}};
  const Labels labels = {{"worker", address}};
  const auto blocks = [&](const char* pool) {
    return make.Blocks("weightless_kv_blocks", "KV blocks of the pool.", address, pool);
  };
  const auto blocks_used = [&](const char* pool) {
    return make.Blocks("weightless_kv_blocks_used", "KV blocks that sequences hold.", address,
                       pool);
  };
  const auto blocks_cached = [&](const char* pool) {
    return make.Blocks("weightless_kv_blocks_cached",
                       "KV blocks held by no sequence that hold a findable prefix.", address, pool);
  };
  ReplicaMetrics metrics = {
      .up = make.Level("weightless_worker_up", "1 while plans can be sent to the worker.", nullptr,
                       labels),
      .running_sequences = make.Level("weightless_worker_running_sequences",
                                      "Sequences on the replica.", nullptr, labels),
      .full_blocks = blocks("full"),
      .full_blocks_used = blocks_used("full"),
      .full_blocks_cached = blocks_cached("full"),
      .sliding_blocks = blocks("sliding"),
      .sliding_blocks_used = blocks_used("sliding"),
      .sliding_blocks_cached = blocks_cached("sliding"),
      .steps = make.Count("weightless_steps_total", "Steps whose result arrived.", nullptr, labels),
      .sampled_tokens =
          make.Count("weightless_sampled_tokens_total",
                     "Tokens that steps brought for sequences the router still held: those of "
                     "answers, and those past a stop string.",
                     nullptr, labels),
      .step_seconds = make.Spread("weightless_step_seconds", "Time of a step on the device.",
                                  TokenTimeBuckets(), nullptr, labels),
      .batch_size = make.Spread("weightless_step_sequences", "Sequences in a step.", BatchBuckets(),
                                nullptr, labels),
      .step_tokens =
          make.Spread("weightless_step_tokens", "New prompt tokens and output tokens of a step.",
                      TokenCountBuckets(), &VllmMetrics::iteration_tokens, labels),
      .plan_ahead_stalls = make.Count(
          "weightless_plan_ahead_stalls_total",
          "Steps that the worker could start only late: the plan was sent after, or less than one "
          "transit time (the least seen between sending a plan and its result, without its device "
          "time) before, the result of the step before it arrived, though it goes on with "
          "sequences that ran already.",
          nullptr, labels),
      .losses = make.Count("weightless_worker_losses_total",
                           "Times that a ready worker was given up.", nullptr, labels),
      .refusals = make.Count("weightless_worker_refusals_total",
                             "Times that a worker was refused: other weights, other protocol or an "
                             "impossible geometry.",
                             nullptr, labels),
      .rejected_plans =
          make.Count("weightless_rejected_plans_total",
                     "Plans that a worker found to break the contract.", nullptr, labels)};
  impl_->removers[address] = {.levels = std::move(make.level_removers),
                              .counts = std::move(make.count_removers)};
  return metrics;
}

}  // namespace weightless
