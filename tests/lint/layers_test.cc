// Who may include whom, and which library's headers stay behind which files.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/lint/source_tree.h"

namespace weightless::lint {
namespace {

using Folders = std::set<std::string>;

// Beside itself, what a folder may include. tests may include everything and nothing includes
// tests.
const std::map<std::string, Folders>& AllowedFolders() {
  static const std::map<std::string, Folders> allowed = {
      {"common", {}},
      {"proto", {}},
      {"model", {"common"}},
      {"kernels", {"common"}},
      {"worker", {"common", "proto", "model", "kernels"}},
      {"router", {"common", "proto", "model"}},
      {"loadtest", {"common"}},
      {"tools", {"common", "proto", "model", "kernels", "worker", "router", "loadtest"}},
  };
  return allowed;
}

struct Include {
  std::string path;
  bool is_quoted = false;
};

std::optional<Include> ParseInclude(const std::string& line) {
  if (line.rfind("#include", 0) != 0) return std::nullopt;
  const size_t open = line.find_first_of("<\"");
  if (open == std::string::npos) return std::nullopt;
  const size_t close = line.find_first_of(">\"", open + 1);
  if (close == std::string::npos) return std::nullopt;
  return Include{line.substr(open + 1, close - open - 1), line[open] == '"'};
}

bool IsCxx(const SourceFile& file) {
  return HasExtension(file, ".h") || HasExtension(file, ".cc") || HasExtension(file, ".cu") ||
         HasExtension(file, ".cuh");
}

bool IsHeader(const SourceFile& file) {
  return HasExtension(file, ".h") || HasExtension(file, ".cuh");
}

// Calls `check(file, line number, include)` for every include of our sources.
template <typename Check>
void ForEachInclude(const Check& check) {
  for (const SourceFile& file : ReadTree()) {
    if (!IsCxx(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const auto include = ParseInclude(file.lines[i]);
      if (include) check(file, file.path + ":" + std::to_string(i + 1), *include);
    }
  }
}

TEST(LayersTest, FoldersIncludeOnlyWhatStandsBelowThem) {
  int num_checked = 0;
  ForEachInclude([&](const SourceFile& file, const std::string& where, const Include& include) {
    const auto from = AllowedFolders().find(TopFolder(file));
    if (from == AllowedFolders().end()) return;  // tests
    const std::string to = TopFolder({include.path, {}});
    if (AllowedFolders().count(to) == 0 && to != "tests") return;  // a library's header
    ++num_checked;
    EXPECT_TRUE(to == from->first || from->second.count(to) != 0)
        << where << ": " << from->first << "/ must not include " << include.path;
  });
  EXPECT_GT(num_checked, 0);
}

TEST(LayersTest, KernelsTakeNothingButChecksFromCommon) {
  ForEachInclude([](const SourceFile& file, const std::string& where, const Include& include) {
    if (TopFolder(file) != "kernels" || include.path.rfind("common/", 0) != 0) return;
    EXPECT_EQ(include.path, "common/check.h") << where;
  });
}

TEST(LayersTest, OurHeadersAreIncludedFromTheRoot) {
  ForEachInclude([](const SourceFile&, const std::string& where, const Include& include) {
    EXPECT_EQ(include.path.find(".."), std::string::npos) << where << ": " << include.path;
    if (!include.is_quoted) return;
    EXPECT_NE(include.path.find('/'), std::string::npos)
        << where << ": write the path from the root, " << include.path;
  });
}

// A header that drags in gRPC, HTTP or JSON makes every file that reads it slow to compile.
TEST(LayersTest, HeavyLibrariesStayInSourceFiles) {
  const std::vector<std::string> heavy = {"grpc",       "boost/asio", "boost/beast",
                                          "boost/json", "nlohmann/",  "spdlog/",
                                          "CLI/",       "yaml-cpp/",  "openssl/"};
  ForEachInclude([&](const SourceFile& file, const std::string& where, const Include& include) {
    if (!IsHeader(file) || TopFolder(file) == "tests") return;
    if (include.path == "boost/json/fwd.hpp") return;  // declarations only
    for (const std::string& prefix : heavy) {
      EXPECT_NE(include.path.rfind(prefix, 0), 0u) << where << ": " << include.path;
    }
    EXPECT_EQ(include.path.find(".grpc.pb.h"), std::string::npos) << where << ": " << include.path;
  });
}

TEST(LayersTest, OnlyTheMetricsAndTheirListenerKnowPrometheus) {
  ForEachInclude([](const SourceFile& file, const std::string& where, const Include& include) {
    if (include.path.rfind("prometheus/", 0) != 0) return;
    if (file.path == "worker/metrics_listener.cc") return;  // the library's HTTP listener
    EXPECT_EQ(TopFolder(file), "common") << where;
  });
}

TEST(LayersTest, EveryHeaderIsGuarded) {
  for (const SourceFile& file : ReadTree()) {
    if (!IsHeader(file)) continue;
    EXPECT_NE(std::find(file.lines.begin(), file.lines.end(), "#pragma once"), file.lines.end())
        << file.path;
  }
}

}  // namespace
}  // namespace weightless::lint
