// weightless bench: the engine alone, without HTTP, gRPC or a scheduler.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/concat.h"
#include "common/flags.h"
#include "common/status.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/bench_report.h"
#include "tools/local_model.h"
#include "tools/read_meter.h"
#include "tools/subcommands.h"
#include "worker/local_runner.h"

namespace weightless::tools {
namespace {

struct BenchConfig {
  LocalModelFlags model;
  std::vector<int> batches = {1, 8};
  std::vector<int> contexts = {128};
  std::vector<int> prompt_tokens = {512};
  int max_step_tokens = 512;
  int decode_steps = 32;
  int repeats = 5;
  std::string json;
};

void AddFlags(CLI::App& app, BenchConfig& config) {
  AddLocalModelFlags(app, config.model);
  app.add_option("--batch", config.batches, "sequences that decode together, a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--context", config.contexts, "tokens before each of them, a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--prompt-tokens", config.prompt_tokens,
                 "lengths of the prompts to prefill, a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-step-tokens", config.max_step_tokens, "tokens of a prefill chunk")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--decode-steps", config.decode_steps, "steps timed together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--repeats", config.repeats, "the median of so many is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", config.json, "also write the results to this file");
}

// Output tokens of the first of `batch` sequences: it decodes while the others are prefilled, then
// is timed.
int NumDecoded(int batch, int context, int step_tokens, int timed_steps) {
  const int64_t prefill_steps = 2 * int64_t{context} * batch / step_tokens;
  return batch + static_cast<int>(prefill_steps) + timed_steps;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Measures on one engine, which was made with room for it. Prompts are random tokens: real ones
// would do as well, zeros would not, since equal rows and cached lines flatter a kernel.
class EngineBench {
 public:
  EngineBench(worker::Engine& engine, int num_threads, int repeats)
      : engine_(engine), repeats_(repeats), read_meter_(num_threads) {}

  absl::StatusOr<BenchRow> Prefill(int num_tokens);
  absl::StatusOr<BenchRow> Decode(int batch, int context, int num_steps);

 private:
  worker::LocalSequence RandomSequence(int num_tokens, int max_tokens);
  int64_t StepBytes(int batch, int context) const;
  int64_t MemoryBytes(const std::string& kind) const;

  worker::Engine& engine_;
  const int repeats_;
  ReadMeter read_meter_;
  std::mt19937 random_{1};
};

worker::LocalSequence EngineBench::RandomSequence(int num_tokens, int max_tokens) {
  const auto vocab_size = static_cast<int32_t>(engine_.description().model().vocab_size());
  std::uniform_int_distribution<int32_t> token(std::min(1, vocab_size - 1), vocab_size - 1);
  worker::LocalSequence sequence;
  for (int i = 0; i < num_tokens; ++i) sequence.tokens.push_back(token(random_));
  sequence.max_tokens = max_tokens;
  return sequence;
}

absl::StatusOr<BenchRow> EngineBench::Prefill(int num_tokens) {
  std::vector<double> seconds;
  for (int repeat = -1; repeat < repeats_; ++repeat) {  // the first warms up
    worker::LocalRunner runner(engine_);
    RETURN_IF_ERROR(runner.Add(RandomSequence(num_tokens, 1)).status());
    const absl::Time start = absl::Now();
    while (!runner.idle()) RETURN_IF_ERROR(runner.Step().status());
    if (repeat >= 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  const double median = Median(std::move(seconds));
  return BenchRow{.phase = "prefill",
                  .batch = 1,
                  .context = num_tokens,
                  .step_s = median,
                  .tokens_per_s = num_tokens / median};
}

absl::StatusOr<BenchRow> EngineBench::Decode(int batch, int context, int num_steps) {
  const absl::Status too_long = absl::InvalidArgumentError(
      Concat("--context ", context, " and its decode steps exceed the length of ",
             engine_.description().geometry().max_context(), " tokens"));
  const auto step_tokens = static_cast<int>(engine_.description().geometry().max_step_tokens());
  const int max_tokens = NumDecoded(batch, context, step_tokens, num_steps * (repeats_ + 2));
  worker::LocalRunner runner(engine_);
  for (int i = 0; i < batch; ++i) {
    RETURN_IF_ERROR(runner.Add(RandomSequence(context, max_tokens)).status());
  }
  int num_decoding = 0;
  while (num_decoding < batch) {
    if (runner.idle()) return too_long;
    ASSIGN_OR_RETURN(const proto::StepResult result, runner.Step());
    num_decoding = result.slots_size();
  }
  std::vector<double> seconds, read_rates;
  for (int repeat = -1; repeat < repeats_; ++repeat) {  // the first warms up
    read_rates.push_back(read_meter_.Measure());
    const absl::Time start = absl::Now();
    for (int step = 0; step < num_steps; ++step) {
      ASSIGN_OR_RETURN(const proto::StepResult result, runner.Step());
      if (result.slots_size() != batch) return too_long;
    }
    if (repeat >= 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / num_steps);
  }
  const double median = Median(std::move(seconds));
  return BenchRow{.phase = "decode",
                  .batch = batch,
                  .context = context,
                  .step_s = median,
                  .tokens_per_s = batch / median,
                  .step_bytes = StepBytes(batch, context),
                  .read_rate = Median(std::move(read_rates))};
}

int64_t EngineBench::MemoryBytes(const std::string& kind) const {
  for (const proto::MemoryUse& use : engine_.description().memory()) {
    if (use.kind() == kind) return static_cast<int64_t>(use.size_bytes());
  }
  return 0;
}

// Every weight once (the embedding as the head), and K and V of every sequence.
int64_t EngineBench::StepBytes(int batch, int context) const {
  const proto::Geometry& geometry = engine_.description().geometry();
  const auto tokens_of = [&](uint32_t num_blocks) {
    return std::max<int64_t>(1, int64_t{num_blocks} * geometry.block_size());
  };
  const int64_t full = MemoryBytes("kv_full") / tokens_of(geometry.num_full_blocks());
  const int64_t sliding = MemoryBytes("kv_sliding") / tokens_of(geometry.num_sliding_blocks());
  const int64_t in_window = std::min<int64_t>(context, geometry.sliding_window());
  return MemoryBytes("weights") + MemoryBytes("embedding") + MemoryBytes("norms") +
         batch * (full * context + sliding * in_window);
}

int NumThreads(const BenchConfig& config) {
  return config.model.threads > 0 ? config.model.threads : kernels::DefaultNumThreads();
}

worker::EngineOptions MakeEngineOptions(const BenchConfig& config) {
  const int max_batch = *std::max_element(config.batches.begin(), config.batches.end());
  const int max_context = *std::max_element(config.contexts.begin(), config.contexts.end());
  const int max_prompt =
      *std::max_element(config.prompt_tokens.begin(), config.prompt_tokens.end());
  const int step_tokens = std::max(config.max_step_tokens, 2 * max_batch);
  const int decoded =
      NumDecoded(max_batch, max_context, step_tokens, config.decode_steps * (config.repeats + 2));
  const int64_t longest = std::max(max_prompt, max_context + decoded);
  const int64_t blocks = max_batch * (longest / kernels::kBlockSize + 2);
  worker::EngineOptions options;
  options.num_slots = max_batch;
  options.max_step_tokens = step_tokens;
  options.num_full_blocks = blocks;
  options.num_sliding_blocks = blocks;
  return options;
}

absl::Status CheckLengths(const std::string& flag, const std::vector<int>& lengths,
                          int max_context) {
  for (const int length : lengths) {
    if (length < max_context) continue;
    return absl::InvalidArgumentError(
        Concat(flag, " ", length, " does not fit the model's length of ", max_context));
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchReport> Measure(const BenchConfig& config) {
  BenchReport report;
  report.threads = NumThreads(config);
  report.repeats = config.repeats;
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(config.model));
  const int max_context = checkpoint->config().max_context;
  RETURN_IF_ERROR(CheckLengths("--context", config.contexts, max_context));
  RETURN_IF_ERROR(CheckLengths("--prompt-tokens", config.prompt_tokens, max_context));
  ASSIGN_OR_RETURN(const auto engine,
                   LoadEngine(*checkpoint, config.model, MakeEngineOptions(config)));
  report.model = engine->description().model().name();
  report.numerics = engine->description().device().numerics();
  report.device = engine->description().device().name();
  EngineBench bench(*engine, report.threads, config.repeats);
  for (const int num_tokens : config.prompt_tokens) {
    ASSIGN_OR_RETURN(report.rows.emplace_back(), bench.Prefill(num_tokens));
  }
  for (const int context : config.contexts) {
    for (const int batch : config.batches) {
      ASSIGN_OR_RETURN(report.rows.emplace_back(),
                       bench.Decode(batch, context, config.decode_steps));
    }
  }
  return report;
}

}  // namespace

int Bench(int argc, const char* const* argv) {
  BenchConfig config;
  CLI::App app("Measures the engine alone: prefill and decode.", "weightless bench");
  AddFlags(app, config);
  if (const auto code = ParseFlags(app, argc, argv)) return *code;
  const auto report = Measure(config);
  if (!report.ok()) {
    std::cerr << "weightless bench: " << report.status().message() << "\n";
    return absl::IsInvalidArgument(report.status()) || absl::IsNotFound(report.status()) ? 2 : 1;
  }
  std::cout << FormatTable(*report) << std::flush;
  if (config.json.empty()) return 0;
  std::ofstream file(config.json);
  file << FormatJson(*report) << std::flush;
  if (file) return 0;
  std::cerr << "weightless bench: cannot write " << config.json << "\n";
  return 1;
}

}  // namespace weightless::tools
