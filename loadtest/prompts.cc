#include "loadtest/prompts.h"

#include <algorithm>

#include "common/concat.h"
#include "common/status.h"
#include "loadtest/request_body.h"
#include "loadtest/text_file.h"

namespace weightless::loadtest {
namespace {

std::vector<size_t> CountWords(const std::vector<std::string>& texts) {
  std::vector<size_t> counts;
  for (const std::string& text : texts) {
    size_t num_words = 0;
    bool in_word = false;
    for (const char c : text) {
      const bool is_blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
      if (!is_blank && !in_word) ++num_words;
      in_word = !is_blank;
    }
    counts.push_back(num_words);
  }
  return counts;
}

std::string RangeText(const LengthRange& range) {
  if (range.low == range.high) return std::to_string(range.low);
  return Concat(range.low, " to ", range.high);
}

struct Counting {
  TokenCounter counter{};
  std::unique_ptr<ServerApi> server{};  // of --tokenizer
  std::string description{};
  bool is_exact = false;
};

TokenCounter CounterOf(ServerApi& server, const std::string& model) {
  return [&server, model](const std::vector<std::string>& texts) {
    return server.CountTokens(model, texts);
  };
}

absl::StatusOr<Counting> ChooseCounter(const Config& config, ServerApi& target,
                                       const std::string& model) {
  const std::string& tokenizer = config.dataset.tokenizer;
  const TokenCounter by_words = [](const std::vector<std::string>& texts) {
    return absl::StatusOr<std::vector<size_t>>(CountWords(texts));
  };
  if (tokenizer == "words") {
    return Counting{.counter = by_words, .description = "taken as one for each word"};
  }
  if (tokenizer.empty()) {
    if (!target.CountTokens(model, {"of"}).ok()) {
      return Counting{.counter = by_words,
                      .description = "taken as one for each word (the server has no /tokenize)"};
    }
    return Counting{.counter = CounterOf(target, model),
                    .description = "counted by the server",
                    .is_exact = true};
  }
  ASSIGN_OR_RETURN(const Url url, ParseUrl(tokenizer));
  Counting counting{.description = Concat("counted by ", tokenizer), .is_exact = true};
  counting.server = std::make_unique<ServerApi>(url, config.tls, CommonHeaders(config));
  RETURN_IF_ERROR(counting.server->Open());
  ASSIGN_OR_RETURN(const std::string other_model, counting.server->FirstModel());
  counting.counter = CounterOf(*counting.server, other_model);
  const auto probe = counting.counter({"of"});
  if (probe.ok()) return counting;
  return absl::InvalidArgumentError(
      Concat("--tokenizer ", tokenizer, ": ", std::string(probe.status().message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromptSource>> MakePrompts(const Config& config, ServerApi& target,
                                                          const std::string& model) {
  auto source = std::make_unique<PromptSource>();
  const DatasetConfig& dataset = config.dataset;
  ASSIGN_OR_RETURN(const Counting counting, ChooseCounter(config, target, model));
  if (dataset.kind == DatasetKind::kJsonl) {
    ASSIGN_OR_RETURN(const std::string text, ReadTextFile(dataset.file));
    auto made = MakeJsonlDataset(text, dataset, config.seed, counting.counter);
    if (!made.ok()) {
      return absl::InvalidArgumentError(
          Concat("--dataset-file ", dataset.file, ": ", std::string(made.status().message())));
    }
    source->dataset = *std::move(made);
    source->description = Concat(dataset.file, ", tokens ", counting.description);
    return source;
  }
  WordText words = WordText::OneTokenWords();
  if (counting.is_exact) {
    ASSIGN_OR_RETURN(words, WordText::Calibrate(counting.counter));
  }
  if (!config.arrivals.trace_file.empty()) {
    ASSIGN_OR_RETURN(source->trace,
                     LoadTrace(config.arrivals.trace_file, config.arrivals.trace_speed));
    source->dataset = MakeTraceDataset(std::move(words), source->trace, config.seed);
    source->description = Concat("random words with the lengths of ", config.arrivals.trace_file,
                                 ", tokens ", counting.description);
    return source;
  }
  const bool has_prefix = dataset.kind == DatasetKind::kSharedPrefix;
  source->dataset =
      MakeRandomDataset(std::move(words), {.input_tokens = dataset.input_tokens,
                                           .output_tokens = dataset.output_tokens,
                                           .prefix_tokens = has_prefix ? dataset.prefix_tokens : 0,
                                           .num_prefixes = has_prefix ? dataset.num_prefixes : 0,
                                           .seed = config.seed});
  source->description =
      Concat(has_prefix ? Concat("one of ", dataset.num_prefixes, " prefixes of ",
                                 dataset.prefix_tokens, " tokens, then ")
                        : std::string(),
             RangeText(dataset.input_tokens), " tokens of random words, ", counting.description,
             "; at most ", RangeText(dataset.output_tokens), " output tokens; seed ", config.seed);
  return source;
}

}  // namespace weightless::loadtest
