#include "tests/lint/source_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace weightless::lint {
namespace {

namespace fs = std::filesystem;

// Not ours to read: built, fetched, or data.
constexpr std::array<std::string_view, 5> kSkippedFolders = {"build", ".git", "models", "golden",
                                                             "__pycache__"};

bool IsSkipped(const fs::path& folder) {
  return std::find(kSkippedFolders.begin(), kSkippedFolders.end(), folder.filename().string()) !=
         kSkippedFolders.end();
}

std::vector<std::string> ReadLines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::vector<SourceFile> ReadTree() {
  const fs::path root = WEIGHTLESS_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    if (it->is_directory() && IsSkipped(it->path())) it.disable_recursion_pending();
    if (!it->is_regular_file()) continue;
    files.push_back({fs::relative(it->path(), root).generic_string(), ReadLines(it->path())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

bool HasExtension(const SourceFile& file, std::string_view extension) {
  return fs::path(file.path).extension().string() == extension;
}

std::string TopFolder(const SourceFile& file) {
  const size_t slash = file.path.find('/');
  return slash == std::string::npos ? std::string() : file.path.substr(0, slash);
}

}  // namespace weightless::lint
