// Documents that must name everything of a kind.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "tests/lint/source_tree.h"

namespace weightless::lint {
namespace {

// In a worker's names the prefix is left out.
TEST(DocsTest, EveryMetricIsInMetricsMd) {
  const std::regex declared("\"(weightless_[a-z0-9_]+)\"");
  const std::string worker_prefix = "weightless_engine_";
  std::set<std::string> families;
  std::string document;
  for (const SourceFile& file : ReadTree()) {
    for (const std::string& line : file.lines) {
      if (file.path == "docs/metrics.md") document += line + "\n";
      if (file.path.rfind("common/", 0) != 0) continue;
      for (std::sregex_iterator it(line.begin(), line.end(), declared), end; it != end; ++it) {
        families.insert((*it)[1]);
      }
    }
  }
  EXPECT_GT(families.size(), 50u);
  for (const std::string& family : families) {
    const bool is_workers = family.rfind(worker_prefix, 0) == 0;
    const std::string name = is_workers ? family.substr(worker_prefix.size()) : family;
    EXPECT_NE(document.find("`" + name + "`"), std::string::npos) << family;
  }
}

}  // namespace
}  // namespace weightless::lint
