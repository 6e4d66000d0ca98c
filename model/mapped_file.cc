#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/concat.h"
#include "common/status.h"

namespace weightless::model {
namespace {

// An open descriptor of a regular file and its size.
struct OpenFile {
  int descriptor = -1;
  size_t size = 0;

  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

absl::Status ErrnoError(const std::string& path, std::string_view action) {
  const int error = errno;
  const std::string message = Concat(path, ": ", action, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  return absl::InvalidArgumentError(message);
}

absl::Status OpenRegular(const std::string& path, OpenFile& file) {
  file.descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor < 0) return ErrnoError(path, "cannot open");
  struct stat info;
  if (fstat(file.descriptor, &info) != 0) return ErrnoError(path, "cannot read its size");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(Concat(path, ": not a regular file"));
  }
  file.size = static_cast<size_t>(info.st_size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  OpenFile file;
  RETURN_IF_ERROR(OpenRegular(path, file));
  if (file.size == 0) return absl::InvalidArgumentError(Concat(path, ": the file is empty"));
  void* address = mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  if (address == MAP_FAILED) return ErrnoError(path, "cannot map");
  // Advice only: tensors are read front to back. Not MADV_WILLNEED, which would read all of a large
  // checkpoint before the first tensor is asked for.
  madvise(address, file.size, MADV_SEQUENTIAL);
  return std::unique_ptr<MappedFile>(
      new MappedFile(std::string_view(static_cast<const char*>(address), file.size)));
}

MappedFile::~MappedFile() { munmap(const_cast<char*>(bytes_.data()), bytes_.size()); }

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes) {
  OpenFile file;
  RETURN_IF_ERROR(OpenRegular(path, file));
  if (file.size > max_bytes) {
    return absl::InvalidArgumentError(
        Concat(path, ": ", file.size, " bytes exceed the limit of ", max_bytes));
  }
  std::string contents(file.size, '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = read(file.descriptor, contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(path, "cannot read");
    if (got == 0) break;  // it shrank meanwhile: what was there is what we have
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

}  // namespace weightless::model
