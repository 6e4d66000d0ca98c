#include "worker/engine.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "common/check.h"
#include "common/concat.h"
#include "common/status.h"
#include "worker/activations.h"
#include "worker/describe.h"
#include "worker/kv_cache.h"

namespace weightless::worker {
namespace {

constexpr int kMaxSlots = 4096;
constexpr int kMaxWorkersOnDevice = 1024;
constexpr int kMaxStepTokens = 65536;
constexpr int kMaxStepsInFlight = 16;
// slot_mapping, block_id * block_size + offset, is an int32.
constexpr int64_t kMaxBlocks = int64_t{1} << 24;

absl::Status CheckOption(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(name, " ", value, " is outside ", low, " .. ", high));
}

absl::Status CheckOptions(const EngineOptions& options, const model::ModelConfig& config) {
  if (options.max_length != 0) {  // a token of the prompt and one of the output
    RETURN_IF_ERROR(CheckOption("max_length", options.max_length, 2, config.max_context));
  }
  RETURN_IF_ERROR(CheckOption("num_slots", options.num_slots, 1, kMaxSlots));
  RETURN_IF_ERROR(
      CheckOption("max_step_tokens", options.max_step_tokens, options.num_slots, kMaxStepTokens));
  RETURN_IF_ERROR(CheckOption("num_full_blocks", options.num_full_blocks, 0, kMaxBlocks));
  RETURN_IF_ERROR(CheckOption("num_sliding_blocks", options.num_sliding_blocks, 0, kMaxBlocks));
  RETURN_IF_ERROR(CheckOption("steps_in_flight", options.steps_in_flight, 0, kMaxStepsInFlight));
  RETURN_IF_ERROR(
      CheckOption("workers_on_device", options.workers_on_device, 1, kMaxWorkersOnDevice));
  if (!(options.memory_utilization >= 0 && options.memory_utilization <= 1)) {
    return absl::InvalidArgumentError(
        Concat("memory_utilization ", options.memory_utilization, " is outside 0 .. 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KvBlocks> ChooseKvBlocks(const model::ModelConfig& config,
                                        const kernels::Backend& backend,
                                        const EngineOptions& options, const PlanLimits& limits,
                                        size_t used_bytes) {
  KvBlocks exact{.full = options.num_full_blocks, .sliding = options.num_sliding_blocks};
  if (exact.full > 0 && (exact.sliding > 0 || limits.sliding_window == 0)) return exact;
  double share = options.memory_utilization;
  if (share == 0) share = backend.device_kind() == "cpu" ? 0.3 : 0.9;
  const size_t total =
      backend.memory_total_bytes() / static_cast<size_t>(options.workers_on_device);
  const double left = total > used_bytes ? static_cast<double>(total - used_bytes) : 0;
  ASSIGN_OR_RETURN(KvBlocks blocks, PlanKvBlocks(config, backend,
                                                 {.num_slots = limits.num_slots,
                                                  .max_length = limits.max_context,
                                                  .max_step_tokens = limits.max_step_tokens},
                                                 static_cast<size_t>(share * left)));
  if (exact.full > 0) blocks.full = exact.full;
  if (exact.sliding > 0) blocks.sliding = exact.sliding;
  return KvBlocks{.full = std::min(blocks.full, kMaxBlocks),
                  .sliding = std::min(blocks.sliding, kMaxBlocks)};
}

absl::Status CheckFinite(int slot, int position, std::span<const float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!std::isfinite(logits[token])) {
      return absl::InternalError(Concat("the model's logits are not finite: slot ", slot,
                                        ", position ", position, ", token ", token));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const model::Checkpoint& checkpoint,
                                                       std::unique_ptr<kernels::Backend> backend,
                                                       const EngineOptions& options,
                                                       const LoadProgress& progress) {
  DenseWeights kind;
  return Create(checkpoint, kind, std::move(backend), options, progress);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const model::Checkpoint& checkpoint,
                                                       WeightKind& kind,
                                                       std::unique_ptr<kernels::Backend> backend,
                                                       const EngineOptions& options,
                                                       const LoadProgress& progress) {
  const model::ModelConfig& config = checkpoint.config();
  RETURN_IF_ERROR(CheckOptions(options, config));
  // Reads every byte once, beside the loading; joined when it goes out of scope.
  std::future<std::string> identity =
      std::async(std::launch::async, [&checkpoint] { return checkpoint.Identity(); });

  PlanLimits limits{.vocab_size = config.vocab_size,
                    .num_slots = options.num_slots,
                    .max_context = options.max_length > 0 ? options.max_length : config.max_context,
                    .max_step_tokens = options.max_step_tokens,
                    .sliding_window = config.sliding_window};
  ASSIGN_OR_RETURN(Weights weights,
                   Weights::Load(checkpoint, kind, limits.max_context, *backend, progress));
  ASSIGN_OR_RETURN(Activations activations,
                   Activations::Create(weights, limits.max_step_tokens, *backend));
  ASSIGN_OR_RETURN(StepBatch batch, StepBatch::Create(limits, *backend));
  ASSIGN_OR_RETURN(Sampler::Memory sampler_memory, Sampler::Memory::Create(limits, *backend));
  MemoryLedger ledger = weights.memory();
  ledger.Add("activations",
             activations.layer_bytes() + batch.size_bytes() + sampler_memory.size_bytes());
  ledger.Add("logits", activations.logit_bytes());
  ASSIGN_OR_RETURN(const KvBlocks blocks,
                   ChooseKvBlocks(config, *backend, options, limits, ledger.total()));
  limits.num_full_blocks = blocks.full;
  limits.num_sliding_blocks = blocks.sliding;
  ASSIGN_OR_RETURN(KvCache kv_cache, KvCache::Create(config, blocks, *backend));

  const KvBytes kv_bytes = KvSize(config, *backend, blocks);
  ledger.Add("kv_full", kv_bytes.full);
  ledger.Add("kv_sliding", kv_bytes.sliding);

  proto::Description description = Describe(checkpoint, kind, *backend, limits);
  if (!options.model_name.empty()) description.mutable_model()->set_name(options.model_name);
  std::string weight_identity = identity.get();
  const std::string& mode = description.weights().mode();
  if (mode != "dense") weight_identity += "-" + mode;
  description.mutable_model()->set_weight_identity(weight_identity);
  AddMemoryLedger(ledger, description);
  Model model(std::move(weights), std::move(kv_cache), std::move(activations), *backend);
  return std::unique_ptr<Engine>(new Engine(std::move(backend), std::move(model), std::move(batch),
                                            std::move(sampler_memory), limits, options,
                                            std::move(description)));
}

Engine::Engine(std::unique_ptr<kernels::Backend> backend, Model model, StepBatch batch,
               Sampler::Memory sampler_memory, const PlanLimits& limits,
               const EngineOptions& options, proto::Description description)
    : backend_(std::move(backend)),
      description_(std::move(description)),
      steps_in_flight_(options.steps_in_flight > 0 ? options.steps_in_flight
                                                   : backend_->steps_in_flight()),
      slots_(limits),
      batch_(std::move(batch)),
      model_(std::move(model)),
      sampler_(std::move(sampler_memory), model_, slots_, *backend_) {}

proto::Description Engine::DescribeNow() const {
  proto::Description now = description_;
  AddWorkspace(*backend_, now);
  return now;
}

absl::Status Engine::Launch(const proto::StepPlan& plan) {
  CHECK(can_launch() && (in_flight_.empty() || !sampler_.has_observer()));
  ASSIGN_OR_RETURN(const std::span<const Run> runs, slots_.Apply(plan));
  sampler_.AdmitSequences();
  batch_.UpdateTables(slots_);
  LaunchedStep step{.step = plan.step(),
                    .num_sequences = static_cast<int>(runs.size()),
                    .continues = slots_.step_continues()};
  if (!runs.empty()) {
    backend_->BeginStep();
    const absl::Status status =
        Compute(batch_.Build(runs, slots_, sampler_.SelectRows(runs, step)), step);
    backend_->EndStep();
    if (!status.ok()) {  // the observer's
      backend_->CollectStep();
      return status;
    }
    for (const Run& run : runs) {
      step.num_tokens += run.num_tokens;
      slots_.Commit(run);
    }
  }
  in_flight_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status Engine::Compute(const StepInputs& inputs, LaunchedStep& step) {
  absl::Status status;
  const auto ops = [&] {
    sampler_.FeedTokens(inputs);
    model_.Forward(inputs);
    status = sampler_.Sample(inputs, step);
  };
  if (inputs.only_decodes && !sampler_.has_observer()) {
    backend_->RunDecodes(inputs.num_decodes, ops);
  } else {
    ops();
  }
  sampler_.DownloadSampled(step);
  return status;
}

CollectedStep Engine::Collect() {
  CHECK(!in_flight_.empty());
  LaunchedStep& step = in_flight_.front();
  const uint64_t compute_ns = step.num_sequences > 0 ? backend_->CollectStep() : 0;
  CollectedStep collected{.result = sampler_.Report(step, std::span(in_flight_).subspan(1)),
                          .num_sequences = step.num_sequences,
                          .continues = step.continues};
  collected.result.set_step(step.step);
  collected.result.set_compute_ns(compute_ns);
  collected.result.set_num_tokens(static_cast<uint32_t>(step.num_tokens));
  in_flight_.erase(in_flight_.begin());
  return collected;
}

absl::StatusOr<proto::StepResult> Engine::Step(const proto::StepPlan& plan) {
  CHECK(in_flight_.empty());
  RETURN_IF_ERROR(Launch(plan));
  return Collect().result;
}

bool Engine::is_step_done() {
  CHECK(!in_flight_.empty());
  return in_flight_.front().num_sequences == 0 || backend_->IsStepDone();
}

void Engine::Reset() {
  for (const LaunchedStep& step : in_flight_) {
    if (step.num_sequences > 0) backend_->CollectStep();
  }
  in_flight_.clear();
  slots_.Reset();
}

absl::Status Engine::WarmUp() {
  Reset();
  sampler_.set_observer(CheckFinite);
  absl::Status status = RunWarmUpSteps();
  sampler_.set_observer({});
  Reset();
  return status;
}

absl::Status Engine::RunWarmUpSteps() {
  proto::StepPlan plan;
  plan.set_step(1);
  proto::Admit& admit = *plan.add_admit();
  const int num_tokens =
      std::min({8, slots_.limits().max_step_tokens, slots_.limits().max_context});
  for (int token = 0; token < num_tokens; ++token) {
    admit.add_tokens(token % slots_.limits().vocab_size);
  }
  admit.set_num_prompt_tokens(static_cast<uint32_t>(num_tokens));
  for (const proto::Pool pool : {proto::POOL_FULL, proto::POOL_SLIDING}) {
    if (pool == proto::POOL_SLIDING && slots_.limits().sliding_window == 0) continue;
    proto::Grow& grow = *plan.add_grow();
    grow.set_pool(pool);
    grow.add_blocks(0);
  }
  plan.add_prefill()->set_num_tokens(static_cast<uint32_t>(num_tokens));
  RETURN_IF_ERROR(Step(plan).status());
  plan.Clear();
  plan.set_step(2);
  plan.mutable_decode()->add_slots(0);
  return Step(plan).status();
}

}  // namespace weightless::worker
