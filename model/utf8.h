// One step of UTF-8 decoding by the WHATWG rules, on which encoding, detokenising and trimming
// agree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightless::model {

enum class Utf8Kind { kValid, kInvalid, kIncomplete };

struct Utf8Step {
  Utf8Kind kind;
  // Bytes read: the character; or the maximal invalid prefix (it stands for one U+FFFD); or all of
  // the text, when it ends inside a character.
  int length;
  uint32_t code_point;  // of a valid character
};

// `text` is not empty.
inline Utf8Step DecodeUtf8(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1, 0};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code_point = lead & (0xFFu >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8Kind::kIncomplete, i, 0};
    const unsigned next = byte(static_cast<size_t>(i));
    if (next < low || next > high) return {Utf8Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::kValid, length, code_point};
}

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, a space in pieces

}  // namespace weightless::model
