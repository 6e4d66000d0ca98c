#include "model/detokenizer.h"

#include <string_view>
#include <utility>

#include "model/utf8.h"

namespace weightless::model {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::Push(int32_t id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return {};
  const std::string bytes = std::exchange(pending_, {}).append(tokenizer_.TokenBytes(id));
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Step step = DecodeUtf8(rest);
    const std::string_view character = rest.substr(0, static_cast<size_t>(step.length));
    if (step.kind == Utf8Kind::kIncomplete) {
      pending_ = character;
    } else {
      text += step.kind == Utf8Kind::kValid ? character : kReplacementCharacter;
    }
    rest.remove_prefix(character.size());
  }
  return text;
}

std::string Detokenizer::Finish() {
  return std::string(std::exchange(pending_, {}).empty() ? std::string_view()
                                                         : kReplacementCharacter);
}

}  // namespace weightless::model
