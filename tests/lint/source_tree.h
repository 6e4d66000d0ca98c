// The repository's own text files, for tests that read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightless::lint {

struct SourceFile {
  std::string path;  // from the repository's root, '/' between folders
  std::vector<std::string> lines;
};

// Every file under the root except build products, version control and models, ordered by path.
std::vector<SourceFile> ReadTree();

bool HasExtension(const SourceFile& file, std::string_view extension);
// The first folder of the path; empty for a file in the root.
std::string TopFolder(const SourceFile& file);

}  // namespace weightless::lint
