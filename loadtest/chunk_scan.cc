#include <charconv>
#include <cstring>

#include "loadtest/chunk.h"

namespace weightless::loadtest {
namespace {

constexpr int kMaxDepth = 64;

// Recursive descent over the few paths that matter; everything else is skipped with its syntax
// checked as far as finding its end needs. Every method returns false to give up.
class Scanner {
 public:
  Scanner(std::string_view text, Chunk& chunk)
      : next_(text.data()), end_(next_ + text.size()), chunk_(chunk) {}

  bool Document() {
    if (!Object([this](std::string_view key) { return TopField(key); })) return false;
    SkipBlanks();
    return next_ == end_;
  }

 private:
  void SkipBlanks() {
    while (next_ < end_ && (*next_ == ' ' || *next_ == '\n' || *next_ == '\r' || *next_ == '\t')) {
      ++next_;
    }
  }

  bool Take(char c) {
    SkipBlanks();
    if (next_ == end_ || *next_ != c) return false;
    ++next_;
    return true;
  }

  bool TakeWord(std::string_view word) {
    SkipBlanks();
    if (static_cast<size_t>(end_ - next_) < word.size()) return false;
    if (std::memcmp(next_, word.data(), word.size()) != 0) return false;
    next_ += word.size();
    return true;
  }

  // The raw text between the quotes; `is_plain` says that it holds no escape.
  bool String(std::string_view& raw, bool& is_plain) {
    if (!Take('"')) return false;
    is_plain = true;
    const char* begin = next_;
    for (; next_ < end_; ++next_) {
      if (*next_ == '"') {
        raw = {begin, static_cast<size_t>(next_ - begin)};
        ++next_;
        return true;
      }
      const auto byte = static_cast<unsigned char>(*next_);
      if (byte < 0x20 || byte >= 0x80) return false;  // is it UTF-8? The full parse checks
      if (*next_ == '\\') {
        is_plain = false;
        if (++next_ == end_) return false;
      }
    }
    return false;
  }

  // Calls `on_field(key)` in front of each value; it consumes the value.
  template <typename OnField>
  bool Object(const OnField& on_field) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string_view key;
      bool is_plain = true;
      if (!String(key, is_plain) || !is_plain || !Take(':') || !on_field(key)) return false;
    } while (Take(','));
    return Take('}');
  }

  template <typename OnItem>
  bool Array(const OnItem& on_item) {
    if (!Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!on_item()) return false;
    } while (Take(','));
    return Take(']');
  }

  bool Skip() {
    SkipBlanks();
    if (next_ == end_) return false;
    std::string_view raw;
    bool is_plain = true;
    switch (*next_) {
      case '"':
        return String(raw, is_plain);
      case '{':
      case '[': {
        if (++depth_ > kMaxDepth) return false;
        const bool ok = *next_ == '{' ? Object([this](std::string_view) { return Skip(); })
                                      : Array([this] { return Skip(); });
        --depth_;
        return ok;
      }
      case 't':
        return TakeWord("true");
      case 'f':
        return TakeWord("false");
      case 'n':
        return TakeWord("null");
      default:
        return Number();
    }
  }

  bool Number() {
    const char* begin = next_;
    while (next_ < end_ && std::strchr("+-.eE0123456789", *next_) != nullptr && *next_ != '\0') {
      ++next_;
    }
    return next_ > begin;
  }

  bool TopField(std::string_view key) {
    if (key == "choices") {
      return TakeWord("null") || Array([this] {
               return Object([this](std::string_view field) { return ChoiceField(field); });
             });
    }
    if (key == "usage" && !TakeWord("null")) {
      chunk_.usage.emplace();
      return Object([this](std::string_view field) { return UsageField(field); });
    }
    if (key == "error" && !TakeWord("null")) {
      chunk_.is_error = true;
      return Skip();
    }
    return key == "usage" || key == "error" || Skip();
  }

  bool ChoiceField(std::string_view key) {
    if (key == "delta") {
      return TakeWord("null") ||
             Object([this](std::string_view field) { return DeltaField(field); });
    }
    if (key == "text") return Content();
    if (key == "token_ids" && !TakeWord("null")) {
      uint32_t count = 0;
      if (!Array([this, &count] { return ++count, Skip(); })) return false;
      chunk_.num_token_ids = chunk_.num_token_ids.value_or(0) + count;
      return true;
    }
    if (key == "finish_reason" && !TakeWord("null")) {
      bool is_plain = true;
      return String(chunk_.finish_reason, is_plain) && is_plain;
    }
    return key == "token_ids" || key == "finish_reason" || Skip();
  }

  bool DeltaField(std::string_view key) {
    if (key == "content" || key == "reasoning_content" || key == "reasoning" || key == "refusal") {
      return Content();
    }
    if (key == "tool_calls" && !TakeWord("null")) {
      return Array([this] { return ++chunk_.content_bytes, Skip(); });
    }
    return key == "tool_calls" || Skip();
  }

  bool Content() {
    if (TakeWord("null")) return true;
    std::string_view raw;
    bool is_plain = true;
    if (!String(raw, is_plain)) return false;
    chunk_.content_bytes += static_cast<uint32_t>(raw.size());
    return true;
  }

  bool UsageField(std::string_view key) {
    if (key == "prompt_tokens") return Count(chunk_.usage->prompt_tokens);
    if (key == "completion_tokens") return Count(chunk_.usage->completion_tokens);
    if (key == "prompt_tokens_details" && !TakeWord("null")) {
      return Object([this](std::string_view field) {
        return field == "cached_tokens" && !TakeWord("null") ? Count(chunk_.usage->cached_tokens)
                                                             : field == "cached_tokens" || Skip();
      });
    }
    return key == "prompt_tokens_details" || Skip();
  }

  bool Count(int64_t& value) {
    SkipBlanks();
    const auto [end, error] = std::from_chars(next_, end_, value);
    if (error != std::errc() || value < 0) return false;
    next_ = end;
    return next_ < end_ && std::strchr(".eE", *next_) == nullptr;
  }

  const char* next_;
  const char* const end_;
  Chunk& chunk_;
  int depth_ = 0;
};

}  // namespace

bool ScanChunk(std::string_view json, Chunk& chunk) { return Scanner(json, chunk).Document(); }

}  // namespace weightless::loadtest
