// The limits that keep a file readable in one sitting.
#include <gtest/gtest.h>

#include <string>

#include "tests/lint/source_tree.h"

namespace weightless::lint {
namespace {

constexpr size_t kHeaderLines = 200;
constexpr size_t kSourceLines = 500;
constexpr size_t kTestLines = 600;
constexpr size_t kFunctionLines = 60;  // twice as many in model/ and kernels/

bool IsHeader(const SourceFile& file) {
  return HasExtension(file, ".h") || HasExtension(file, ".cuh");
}

bool IsSource(const SourceFile& file) {
  return HasExtension(file, ".cc") || HasExtension(file, ".cu") || HasExtension(file, ".py");
}

// Checks the bodies that close at `indent`. The sources are formatted: a function's head is the
// last line with that indent before its closing brace, which stands alone. (Blocks inside a
// function look alike one level deeper, and are shorter than it.)
void CheckFunctions(const SourceFile& file, size_t indent, size_t limit) {
  const std::string close = std::string(indent, ' ') + "}";
  size_t start = 0;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (line == close) {
      EXPECT_LE(i - start + 1, limit) << file.path << ":" << start + 1 << ": " << file.lines[start]
                                      << " is too long; cut it where it changes its subject";
    }
    if (line.find_first_not_of(' ') != indent) continue;
    if (std::string("}/#").find(line[indent]) == std::string::npos) start = i;
  }
}

TEST(SizesTest, FilesStayUnderTheirLimits) {
  size_t num_checked = 0;
  for (const SourceFile& file : ReadTree()) {
    if (!IsHeader(file) && !IsSource(file)) continue;
    ++num_checked;
    const size_t source_limit = TopFolder(file) == "tests" ? kTestLines : kSourceLines;
    EXPECT_LE(file.lines.size(), IsHeader(file) ? kHeaderLines : source_limit) << file.path;
  }
  EXPECT_GT(num_checked, 0u);
}

TEST(SizesTest, FunctionsStayUnderTheirLimits) {
  for (const SourceFile& file : ReadTree()) {
    if (!IsHeader(file) && (!IsSource(file) || HasExtension(file, ".py"))) continue;
    const std::string folder = TopFolder(file);
    const bool is_dense = folder == "model" || folder == "kernels";
    const size_t limit = is_dense ? 2 * kFunctionLines : kFunctionLines;
    CheckFunctions(file, 0, limit);
    CheckFunctions(file, 2, limit);
  }
}

}  // namespace
}  // namespace weightless::lint
