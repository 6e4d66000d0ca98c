#include "loadtest/word_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::loadtest {
namespace {

constexpr const char* kFirstWord = "of";

constexpr std::array kWords = {
    "a",       "about",   "after",  "again",  "air",    "all",    "also",    "an",     "and",
    "animal",  "answer",  "any",    "are",    "as",     "ask",    "at",      "away",   "back",
    "be",      "because", "been",   "before", "big",    "book",   "both",    "boy",    "but",
    "by",      "call",    "came",   "can",    "change", "city",   "close",   "come",   "could",
    "country", "cut",     "day",    "did",    "do",     "does",   "down",    "each",   "earth",
    "eat",     "end",     "even",   "every",  "eye",    "face",   "far",     "father", "few",
    "find",    "first",   "follow", "food",   "for",    "form",   "found",   "from",   "get",
    "give",    "go",      "good",   "great",  "group",  "grow",   "had",     "hand",   "hard",
    "has",     "have",    "he",     "head",   "help",   "her",    "here",    "high",   "him",
    "his",     "home",    "house",  "how",    "if",     "in",     "into",    "is",     "it",
    "just",    "keep",    "kind",   "know",   "land",   "large",  "last",    "learn",  "left",
    "letter",  "life",    "light",  "like",   "line",   "list",   "little",  "live",   "long",
    "look",    "made",    "make",   "man",    "many",   "may",    "me",      "mean",   "men",
    "might",   "more",    "most",   "mother", "move",   "much",   "must",    "my",     "name",
    "near",    "need",    "never",  "new",    "next",   "night",  "no",      "not",    "now",
    "number",  "off",     "old",    "on",     "one",    "only",   "or",      "other",  "our",
    "out",     "over",    "own",    "page",   "part",   "people", "picture", "place",  "plant",
    "play",    "point",   "read",   "right",  "run",    "said",   "same",    "saw",    "say",
    "school",  "sea",     "second", "see",    "seem",   "set",    "she",     "should", "show",
    "side",    "small",   "so",     "some",   "sound",  "spell",  "stand",   "start",  "still",
    "story",   "study",   "such",   "take",   "tell",   "than",   "that",    "the",    "them",
    "then",    "there",   "these",  "they",   "thing",  "think",  "this",    "time",   "to",
    "too",     "tree",    "try",    "turn",   "two",    "under",  "up",      "us",     "use",
    "very",    "want",    "was",    "water",  "way",    "we",     "well",    "went",   "were",
    "what",    "when",    "where",  "which",  "who",    "why",    "will",    "with",   "word",
    "work",    "world",   "would",  "write",  "year",   "you",    "your"};

}  // namespace

WordText::WordText(size_t first_tokens, std::vector<Word> words)
    : first_tokens_(first_tokens), words_(std::move(words)) {
  std::stable_sort(words_.begin(), words_.end(),
                   [](const Word& a, const Word& b) { return a.num_tokens < b.num_tokens; });
}

absl::StatusOr<WordText> WordText::Calibrate(const TokenCounter& count) {
  std::vector<std::string> texts = {kFirstWord};
  for (const char* word : kWords) texts.push_back(Concat(kFirstWord, " ", word));
  ASSIGN_OR_RETURN(const std::vector<size_t> counts, count(texts));
  std::vector<Word> words;
  for (size_t i = 0; i < kWords.size(); ++i) {
    if (counts[i + 1] > counts[0]) words.push_back({kWords[i], counts[i + 1] - counts[0]});
  }
  if (words.empty()) return absl::UnimplementedError("the server's token counts do not add up");
  return WordText(counts[0], std::move(words));
}

WordText WordText::OneTokenWords() {
  std::vector<Word> words;
  for (const char* word : kWords) words.push_back({word, 1});
  return WordText(1, std::move(words));
}

std::string WordText::Make(size_t num_tokens, Random& random, size_t& actual) const {
  std::string text = kFirstWord;
  actual = first_tokens_;
  size_t num_usable = words_.size();
  while (actual < num_tokens) {
    while (num_usable > 0 && words_[num_usable - 1].num_tokens > num_tokens - actual) --num_usable;
    if (num_usable == 0) break;
    const Word& word = words_[random.Below(num_usable)];
    text += ' ';
    text += word.text;
    actual += word.num_tokens;
  }
  return text;
}

}  // namespace weightless::loadtest
