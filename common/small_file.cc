#include "common/small_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/concat.h"

namespace weightless {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::string_view what) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) {
    return absl::InvalidArgumentError(Concat("cannot be read: ", std::strerror(errno)));
  }
  std::string text(kMaxBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(Concat("cannot be read: ", std::strerror(errno)));
  }
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        Concat("is larger than ", kMaxBytes, " bytes, the limit of a file of ", what));
  }
  return text;
}

}  // namespace weightless
