#include "loadtest/error_text.h"

#include "absl/strings/ascii.h"
#include "common/concat.h"

namespace weightless::loadtest {

std::string Excerpt(std::string_view text) {
  constexpr size_t kMaxBytes = 300;
  std::string out;
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isprint(byte)) {
      out += c;
    } else if (absl::ascii_isspace(byte)) {
      out += ' ';
    } else {
      out += Concat("\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return text.size() > kMaxBytes ? out + "..." : out;
}

std::string RefusalText(const ResponseHead& head, std::string_view body) {
  if (head.status >= 300 && head.status < 400 && !head.location.empty()) {
    return Concat("HTTP ", head.status, ": a redirect to ", Excerpt(head.location),
                  ", which is not followed");
  }
  return Concat("HTTP ", head.status, body.empty() ? "" : ": ", Excerpt(body));
}

}  // namespace weightless::loadtest
