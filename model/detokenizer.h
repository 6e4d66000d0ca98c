// Token ids to text as they come, never half a character.
#pragma once

#include <cstdint>
#include <string>

#include "model/tokenizer.h"

namespace weightless::model {

// Text is always valid UTF-8 whatever the tokens are: each maximal invalid prefix becomes one
// U+FFFD (WHATWG), and the concatenation of all Push results and Finish does not depend on how the
// calls are spread. Owned by one thread.
class Detokenizer {
 public:
  // `tokenizer` outlives this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // The text that became certain with this token; an incomplete character is held back (at most 3
  // bytes).
  std::string Push(int32_t id);
  // What was held back.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::string pending_;
};

}  // namespace weightless::model
