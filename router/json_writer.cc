#include "router/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace weightless::router {
namespace {

constexpr char kHex[] = "0123456789abcdef";

constexpr std::array<bool, 256> MustEscape() {
  std::array<bool, 256> table{};
  for (size_t c = 0; c < 0x20; ++c) table[c] = true;
  table['"'] = true;
  table['\\'] = true;
  return table;
}
constexpr std::array<bool, 256> kMustEscape = MustEscape();

void AppendEscaped(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
  }
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!kMustEscape[c]) [[likely]]
      continue;
    out.append(text, copied, i - copied);
    AppendEscaped(out, c);
    copied = i + 1;
  }
  out.append(text, copied);
  out += '"';
}

void AppendJsonInt(std::string& out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

void AppendJsonFloat(std::string& out, float value) {
  constexpr float kLimit = 9999.0f;
  if (!(std::abs(value) <= kLimit)) value = std::signbit(value) ? -kLimit : kLimit;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

std::string JsonString(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

}  // namespace weightless::router
