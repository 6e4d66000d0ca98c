#include "common/worker_metrics.h"

#include <prometheus/collectable.h>

#include <iterator>
#include <utility>
#include <vector>

#include "common/metric_registry.h"

namespace weightless {

namespace {

constexpr char kMemoryName[] = "weightless_engine_memory_bytes";
constexpr char kMemoryHelp[] = "Device memory by class of use: the ledger.";

}  // namespace

struct WorkerMetrics::Impl : public prometheus::Collectable {
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = registry.Collect();
    std::vector<prometheus::MetricFamily> process = CollectProcess();
    std::move(process.begin(), process.end(), std::back_inserter(families));
    return families;
  }

  void AddFacts(const WorkerFacts& facts) {
    const auto level = [this](const char* name, const char* help, uint64_t value,
                              const prometheus::Labels& labels = {}) {
      MakeGauge(registry, name, help, labels).Set(static_cast<double>(value));
    };
    prometheus::Labels labels = VariantLabels(facts);
    labels.emplace("device_name", facts.device_name);
    level("weightless_engine_info", "1; what the worker serves, as labels.", 1, labels);
    for (const auto& [kind, size_bytes] : facts.memory) {
      level(kMemoryName, kMemoryHelp, size_bytes, {{"class", kind}});
    }
    level("weightless_engine_memory_total_bytes", "Memory of the device.",
          facts.memory_total_bytes);
    level("weightless_engine_kv_blocks", "KV blocks of the pool.", facts.num_full_blocks,
          {{"pool", "full"}});
    level("weightless_engine_kv_blocks", "KV blocks of the pool.", facts.num_sliding_blocks,
          {{"pool", "sliding"}});
    level("weightless_engine_slots", "Sequences that fit at once.", facts.num_slots);
    level("weightless_engine_parameters", "Parameters of the model.", facts.num_parameters);
  }

  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
};

WorkerMetrics::WorkerMetrics(const WorkerFacts& facts)
    : impl_(std::make_shared<Impl>()),
      step_seconds(MakeHistogram(impl_->registry, "weightless_engine_step_seconds",
                                 "Time of a step on the device.", TokenTimeBuckets())),
      step_sequences(MakeHistogram(impl_->registry, "weightless_engine_step_sequences",
                                   "Sequences in a step.", BatchBuckets())),
      step_tokens(MakeHistogram(impl_->registry, "weightless_engine_step_tokens",
                                "Tokens computed in a step, prefill and decode.",
                                TokenCountBuckets())),
      computed_tokens(MakeCounter(impl_->registry, "weightless_engine_computed_tokens_total",
                                  "Tokens computed, prefill and decode.")),
      sampled_tokens(MakeCounter(impl_->registry, "weightless_engine_sampled_tokens_total",
                                 "Tokens sampled.")),
      wait_seconds(MakeCounter(impl_->registry, "weightless_engine_wait_seconds_total",
                               "Time without a plan to run while sequences were in the slots.")),
      slots_used(MakeGauge(impl_->registry, "weightless_engine_slots_used",
                           "Slots with a sequence after the last step.")),
      owned(
          MakeGauge(impl_->registry, "weightless_engine_owned", "1 while a router has the lease.")),
      rejected_plans(MakeCounter(impl_->registry, "weightless_engine_rejected_plans_total",
                                 "Plans that broke the contract.")),
      workspace_bytes(
          MakeGauge(impl_->registry, kMemoryName, kMemoryHelp, {{"class", "workspace"}})),
      allocated_bytes(MakeGauge(impl_->registry, "weightless_engine_memory_allocated_bytes",
                                "Device memory taken, as the device's allocator counts it.")) {
  impl_->AddFacts(facts);
  allocated_bytes.Set(static_cast<double>(facts.memory_allocated_bytes));
  AddBuildInfo(impl_->registry);
}

WorkerMetrics::~WorkerMetrics() = default;

std::shared_ptr<prometheus::Collectable> WorkerMetrics::collectable() const { return impl_; }

}  // namespace weightless
