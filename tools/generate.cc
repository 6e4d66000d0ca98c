// weightless generate: one completion in this process, streamed to the terminal.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/concat.h"
#include "common/flags.h"
#include "common/status.h"
#include "model/chat_template.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "tools/local_model.h"
#include "tools/subcommands.h"
#include "worker/local_runner.h"

namespace weightless::tools {
namespace {

struct GenerateConfig {
  LocalModelFlags model;
  std::string prompt;
  bool chat = false;
  int max_new_tokens = 128;
  int max_length = 0;
  float temperature = 0;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  int64_t seed = 0;
};

void AddFlags(CLI::App& app, GenerateConfig& config) {
  AddLocalModelFlags(app, config.model);
  app.add_option("--prompt", config.prompt, "text to go on from; - reads standard input")
      ->required();
  app.add_flag("--chat", config.chat, "the prompt is a user's message, not a text to continue");
  app.add_option("--max-new-tokens", config.max_new_tokens, "at most so many")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-length", config.max_length, "tokens of prompt and output; 0: the model's")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--temperature", config.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--top-k", config.top_k, "draw from the k most likely; 0: from all")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--top-p", config.top_p, "draw from the smallest set of this mass")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", config.min_p, "drop what is less likely than this share of the best")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", config.seed, "equal seeds draw equal tokens")->capture_default_str();
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const model::Tokenizer& tokenizer,
                                                  const GenerateConfig& config) {
  if (config.chat) {
    ASSIGN_OR_RETURN(const std::vector<model::TextPiece> pieces,
                     model::RenderGemma3Chat({{.role = "user", .parts = {config.prompt}}}, {}));
    return tokenizer.Encode(pieces);  // the template begins with BOS
  }
  std::vector<int32_t> tokens = tokenizer.Encode(config.prompt);
  tokens.insert(tokens.begin(), tokenizer.bos_id());
  return tokens;
}

worker::LocalSequence MakeSequence(const GenerateConfig& config, std::vector<int32_t> prompt,
                                   const proto::ModelCard& model, int max_tokens) {
  worker::LocalSequence sequence;
  sequence.tokens = std::move(prompt);
  sequence.max_tokens = max_tokens;
  sequence.sampling.set_temperature(config.temperature);
  sequence.sampling.set_top_k(static_cast<uint32_t>(config.top_k));
  sequence.sampling.set_top_p(config.top_p);
  sequence.sampling.set_min_p(config.min_p);
  sequence.sampling.set_seed(config.seed);
  *sequence.sampling.mutable_stop_token_ids() = model.eos_token_ids();
  return sequence;
}

void PrintRates(int num_prompt_tokens, int num_output_tokens, absl::Time start, absl::Time first,
                absl::Time end) {
  const double prefill_s = absl::ToDoubleSeconds(first - start);
  const double decode_s = absl::ToDoubleSeconds(end - first);
  const int num_decoded = num_output_tokens - 1;  // the first comes with the prompt
  std::cerr << absl::StrFormat("prompt: %d tokens in %.3f s", num_prompt_tokens, prefill_s);
  std::cerr << absl::StrFormat("; output: %d tokens", num_output_tokens);
  if (num_decoded > 0) {
    std::cerr << absl::StrFormat(", %.1f tokens/s", num_decoded / decode_s);
  }
  std::cerr << "\n";
}

// Runs the one sequence to its end and prints its text as it becomes certain.
absl::Status Stream(worker::Engine& engine, worker::LocalSequence sequence,
                    const model::Tokenizer& tokenizer) {
  const auto num_prompt_tokens = static_cast<int>(sequence.tokens.size());
  worker::LocalRunner runner(engine);
  model::Detokenizer detokenizer(tokenizer, /*skip_special=*/true);
  const absl::Time start = absl::Now();
  absl::Time first = start;
  int num_output_tokens = 0;
  RETURN_IF_ERROR(runner.Add(std::move(sequence)).status());
  while (!runner.idle()) {
    ASSIGN_OR_RETURN(const proto::StepResult result, runner.Step());
    for (const proto::SlotResult& slot : result.slots()) {
      if (!slot.has_token()) continue;
      if (num_output_tokens++ == 0) first = absl::Now();
      std::cout << detokenizer.Push(slot.token()) << std::flush;
    }
  }
  std::cout << detokenizer.Finish() << std::endl;
  PrintRates(num_prompt_tokens, num_output_tokens, start, first, absl::Now());
  return absl::OkStatus();
}

absl::Status Run(GenerateConfig& config) {
  if (config.prompt == "-") {
    config.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(config.model));
  ASSIGN_OR_RETURN(const auto tokenizer,
                   model::Tokenizer::FromModelFiles(checkpoint->model_files()));
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt, EncodePrompt(*tokenizer, config));
  const int max_length =
      config.max_length > 0 ? config.max_length : checkpoint->config().max_context;
  const auto num_prompt_tokens = static_cast<int>(prompt.size());
  if (num_prompt_tokens >= max_length) {
    return absl::InvalidArgumentError(Concat("the prompt's ", num_prompt_tokens,
                                             " tokens leave no room in a length of ", max_length));
  }
  const int max_tokens = std::min(config.max_new_tokens, max_length - num_prompt_tokens);
  worker::EngineOptions options;
  options.max_length = config.max_length;
  options.num_slots = 1;
  options.num_full_blocks = (num_prompt_tokens + max_tokens) / kernels::kBlockSize + 1;
  options.num_sliding_blocks = options.num_full_blocks;
  ASSIGN_OR_RETURN(const auto engine, LoadEngine(*checkpoint, config.model, options));
  return Stream(*engine,
                MakeSequence(config, std::move(prompt), engine->description().model(), max_tokens),
                *tokenizer);
}

}  // namespace

int Generate(int argc, const char* const* argv) {
  GenerateConfig config;
  CLI::App app("Completes one prompt in this process and streams it to the terminal.",
               "weightless generate");
  AddFlags(app, config);
  if (const auto code = ParseFlags(app, argc, argv)) return *code;
  const absl::Status status = Run(config);
  if (status.ok()) return 0;
  std::cerr << "weightless generate: " << status.message() << "\n";
  const bool is_usage = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return is_usage ? 2 : 1;
}

}  // namespace weightless::tools
