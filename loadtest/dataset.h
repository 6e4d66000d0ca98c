// The prompts of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/config.h"
#include "loadtest/trace.h"
#include "loadtest/word_text.h"

namespace weightless::loadtest {

struct Message {
  std::string role;
  std::string content;
};

struct Prompt {
  std::vector<Message> messages;  // completions get the contents, joined by a line feed
  size_t num_tokens = 0;          // without a template; 0 when unknown
  size_t max_tokens = 0;
};

// Prompt `index` is a function of the seed and the index alone.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual Prompt Get(uint64_t index) const = 0;
  // How many there are before the first comes again; nothing: no end, or runs that each begin with
  // the first.
  virtual std::optional<uint64_t> size() const { return std::nullopt; }
};

// Random words, lengths uniform in the ranges. With prefix_tokens > 0 the text begins with one of
// num_prefixes texts of that length, which counts in addition to input_tokens.
struct RandomLengths {
  LengthRange input_tokens;
  LengthRange output_tokens;
  size_t prefix_tokens = 0;
  size_t num_prefixes = 0;
  uint64_t seed = 0;
};
std::unique_ptr<Dataset> MakeRandomDataset(WordText words, RandomLengths lengths);

// Lengths and shared blocks of a trace, text by random words. `entries` must outlive the dataset.
std::unique_ptr<Dataset> MakeTraceDataset(WordText words, const std::vector<TraceEntry>& entries,
                                          uint64_t seed);

// Prompts of a JSONL text or of one JSON array, in an order shuffled by the seed, again from the
// start when all were used. An item is
//   {"conversations": [{"from": "human"|"user"|.., "value": ".."}, ..]}     (ShareGPT)
//   {"messages": [{"role": "..", "content": ".."}, ..]}  or  {"prompt": ".."}
// A conversation is asked up to and with its first human turn. max_tokens is the item's
// "output_tokens" or the length of its "completion" or next turn as `count` says, unless
// config.output_is_given. kInvalidArgument names the line or item.
absl::StatusOr<std::unique_ptr<Dataset>> MakeJsonlDataset(std::string_view text,
                                                          const DatasetConfig& config,
                                                          uint64_t seed, const TokenCounter& count);

}  // namespace weightless::loadtest
