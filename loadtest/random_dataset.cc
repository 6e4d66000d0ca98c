#include "common/check.h"
#include "loadtest/dataset.h"

namespace weightless::loadtest {
namespace {

// Streams of the random generator, so that a length never depends on another's text.
constexpr uint64_t kPrefixStream = uint64_t{1} << 40;
constexpr uint64_t kBlockStream = uint64_t{1} << 41;

class RandomDataset : public Dataset {
 public:
  RandomDataset(WordText words, RandomLengths lengths)
      : words_(std::move(words)), lengths_(lengths) {
    for (size_t i = 0; i < lengths_.num_prefixes; ++i) {
      Random random(lengths_.seed, kPrefixStream + i);
      size_t actual = 0;
      prefixes_.push_back(words_.Make(lengths_.prefix_tokens, random, actual));
      prefix_tokens_.push_back(actual);
    }
  }

  Prompt Get(uint64_t index) const override {
    Random random(lengths_.seed, index);
    Prompt prompt;
    const size_t input = random.Between(lengths_.input_tokens.low, lengths_.input_tokens.high);
    prompt.max_tokens = random.Between(lengths_.output_tokens.low, lengths_.output_tokens.high);
    std::string text = words_.Make(input, random, prompt.num_tokens);
    if (!prefixes_.empty()) {
      const size_t prefix_idx = random.Below(prefixes_.size());
      text = prefixes_[prefix_idx] + "\n" + text;
      prompt.num_tokens += prefix_tokens_[prefix_idx];
    }
    prompt.messages.push_back({"user", std::move(text)});
    return prompt;
  }

 private:
  const WordText words_;
  const RandomLengths lengths_;
  std::vector<std::string> prefixes_;
  std::vector<size_t> prefix_tokens_;
};

class TraceDataset : public Dataset {
 public:
  TraceDataset(WordText words, const std::vector<TraceEntry>& entries, uint64_t seed)
      : words_(std::move(words)), entries_(entries), seed_(seed) {}

  Prompt Get(uint64_t index) const override {
    const TraceEntry& entry = entries_[index % entries_.size()];
    Prompt prompt;
    prompt.max_tokens = entry.output_tokens;
    std::string text;
    for (const int64_t id : entry.hash_ids) {
      if (prompt.num_tokens >= entry.input_tokens) break;
      Random random(seed_, kBlockStream + static_cast<uint64_t>(id));
      Append(std::min(kTraceBlockTokens, entry.input_tokens - prompt.num_tokens), random, text,
             prompt);
    }
    if (prompt.num_tokens < entry.input_tokens) {
      Random random(seed_, index);
      Append(entry.input_tokens - prompt.num_tokens, random, text, prompt);
    }
    prompt.messages.push_back({"user", std::move(text)});
    return prompt;
  }

 private:
  void Append(size_t num_tokens, Random& random, std::string& text, Prompt& prompt) const {
    size_t actual = 0;
    if (!text.empty()) text += '\n';
    text += words_.Make(num_tokens, random, actual);
    prompt.num_tokens += actual;
  }

  const WordText words_;
  const std::vector<TraceEntry>& entries_;
  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<Dataset> MakeRandomDataset(WordText words, RandomLengths lengths) {
  return std::make_unique<RandomDataset>(std::move(words), lengths);
}

std::unique_ptr<Dataset> MakeTraceDataset(WordText words, const std::vector<TraceEntry>& entries,
                                          uint64_t seed) {
  CHECK(!entries.empty());
  return std::make_unique<TraceDataset>(std::move(words), entries, seed);
}

}  // namespace weightless::loadtest
