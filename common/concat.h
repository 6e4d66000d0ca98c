// Concat(parts...): absl::StrCat that also takes std::string_view. The distribution's Abseil is
// built for C++14, where absl::string_view is a type of its own.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weightless {
namespace internal {

template <typename T>
decltype(auto) ConcatPart(const T& part) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = part;
    return absl::string_view(text.data(), text.size());
  } else {
    return (part);
  }
}

}  // namespace internal

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  return absl::StrCat(internal::ConcatPart(parts)...);
}

// Untrusted text fit for a message: quoted, escaped, cut after 80 bytes.
inline std::string Quoted(std::string_view text) {
  const std::string head(text.substr(0, 80));
  return Concat("\"", absl::CHexEscape(head), text.size() > 80 ? "..." : "", "\"");
}

}  // namespace weightless
