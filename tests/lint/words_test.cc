// What must not stand in any file: paths of one machine, marks of unfinished work, tabs and
// trailing blanks in sources.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/lint/source_tree.h"

namespace weightless::lint {
namespace {

// Cut in two, so that this file does not hold them itself.
const std::vector<std::string>& Forbidden() {
  static const std::vector<std::string> words = {
      std::string("/ro") + "ot/",      std::string("/ho") + "me/",  std::string("/wo") + "rk/",
      std::string("../sha") + "red",   std::string("TO") + "DO",    std::string("FIX") + "ME",
      std::string("Claude ") + "Code", std::string("Chat") + "GPT",
  };
  return words;
}

TEST(WordsTest, NoFileHoldsAForbiddenWord) {
  for (const SourceFile& file : ReadTree()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& word : Forbidden()) {
        EXPECT_EQ(file.lines[i].find(word), std::string::npos)
            << file.path << ":" << i + 1 << ": '" << word << "'";
      }
    }
  }
}

TEST(WordsTest, SourcesHoldNoTabsOrTrailingBlanks) {
  for (const SourceFile& file : ReadTree()) {
    if (!HasExtension(file, ".h") && !HasExtension(file, ".cc") && !HasExtension(file, ".py")) {
      continue;
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      EXPECT_EQ(line.find('\t'), std::string::npos) << file.path << ":" << i + 1;
      EXPECT_FALSE(!line.empty() && line.back() == ' ') << file.path << ":" << i + 1;
    }
  }
}

}  // namespace
}  // namespace weightless::lint
