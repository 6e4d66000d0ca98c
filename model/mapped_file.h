// Read-only views of files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weightless::model {

// A regular file mapped for reading until this is destroyed. The file must not shrink meanwhile.
class MappedFile {
 public:
  // kNotFound, or kInvalidArgument for what is not a regular file or is empty; both name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}

  const std::string_view bytes_;
};

// The contents of a file of at most max_bytes; kNotFound, or kInvalidArgument naming size and
// limit.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes);

}  // namespace weightless::model
