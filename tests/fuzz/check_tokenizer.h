// What must hold for any tokenizer that loads, however strange its vocabulary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "model/tokenizer.h"
#include "model/utf8.h"

namespace weightless::model {

// Encodes `text` with special tokens and without: ids are inside the vocabulary, none is special
// where they are inert, and the tokens spell the text. Requires that text holds no byte token's
// name, which an added token may turn into its byte.
inline void CheckSpelling(const Tokenizer& tokenizer, const std::string& text) {
  std::string expected;
  for (size_t i = 0; i < text.size();) {
    const bool mark = std::string_view(text).substr(i).starts_with(kSpaceMark);
    expected += mark ? ' ' : text[i];
    i += mark ? kSpaceMark.size() : 1;
  }
  for (const bool parse_special : {false, true}) {
    std::string spelled;
    for (const int32_t id : tokenizer.Encode(text, parse_special)) {
      CHECK(id >= 0 && id < tokenizer.vocab_size());
      CHECK(parse_special || !tokenizer.IsSpecial(id));
      spelled += tokenizer.TokenBytes(id);
    }
    CHECK(spelled == expected);
  }
}

// Texts of every kind, and pieces of the vocabulary itself.
inline void CheckTokenizer(const Tokenizer& tokenizer) {
  CHECK(tokenizer.bos_id() >= 0 && tokenizer.bos_id() < tokenizer.vocab_size());
  std::string pieces;
  const int32_t stride = tokenizer.vocab_size() / 64 + 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); id += stride) {
    if (!tokenizer.IsByteToken(id)) pieces += tokenizer.TokenBytes(id);
  }
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  for (const std::string& text :
       {std::string(), std::string("the <bos> ab abab  \n\n\n"), pieces, bytes,
        std::string(100, 'a'), std::string(100, ' '), "\xE2\x96\x81\xE2\x96 " + pieces}) {
    if (text.find("<0x") == std::string::npos) CheckSpelling(tokenizer, text);
  }
}

}  // namespace weightless::model
