#include "loadtest/text_file.h"

#include <fstream>
#include <iterator>

#include "common/concat.h"

namespace weightless::loadtest {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  constexpr std::streamoff kMaxBytes = std::streamoff{1} << 31;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return absl::NotFoundError(Concat("cannot read ", path));
  const std::streamoff size = in.tellg();
  if (size < 0) return absl::NotFoundError(Concat("cannot read ", path));
  if (size > kMaxBytes) {
    return absl::InvalidArgumentError(Concat(path, ": ", size, " bytes exceed ", kMaxBytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(text.data(), size)) return absl::NotFoundError(Concat("cannot read ", path));
  return text;
}

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(Concat("cannot write ", path));
}

absl::Status ForEachLine(std::string_view text,
                         absl::FunctionRef<absl::Status(std::string_view)> on_line) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const absl::Status status = on_line(line);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          Concat("line ", number, ": ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace weightless::loadtest
