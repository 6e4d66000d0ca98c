// Random text with a wanted number of tokens.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/random.h"

namespace weightless::loadtest {

// Counts the tokens of texts; the server's /tokenize, or a rule of thumb.
using TokenCounter =
    std::function<absl::StatusOr<std::vector<size_t>>(const std::vector<std::string>&)>;

// Common English words whose cost in tokens is known, so that a text of n tokens is put together
// without asking again: subword tokenizers split at blanks, so costs add up.
class WordText {
 public:
  // Asks `count` once for each word.
  static absl::StatusOr<WordText> Calibrate(const TokenCounter& count);
  // One token for each word.
  static WordText OneTokenWords();

  // Words drawn with `random` until they make `num_tokens` tokens; `actual` gets what they make,
  // less than asked only when no word is short enough for the rest.
  std::string Make(size_t num_tokens, Random& random, size_t& actual) const;

 private:
  struct Word {
    const char* text;
    size_t num_tokens;
  };

  WordText(size_t first_tokens, std::vector<Word> words);

  size_t first_tokens_;      // of the word that opens every text, which no blank precedes
  std::vector<Word> words_;  // by rising cost
};

}  // namespace weightless::loadtest
