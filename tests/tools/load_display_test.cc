#include "tools/load_display.h"

#include <gtest/gtest.h>

namespace weightless::tools {
namespace {

TEST(LoadDisplayTest, ReadsTheFractionOfALogLine) {
  EXPECT_EQ(ParseLoadProgress("2026-01-02T03:04:05Z INFO event=load_progress fraction=0.25"), 0.25);
  EXPECT_EQ(ParseLoadProgress("INFO event=load_progress fraction=7 x=1"), 1.0);
}

TEST(LoadDisplayTest, LeavesOtherLinesAlone) {
  for (const char* line :
       {"", "INFO event=ready", "INFO event=load_progress", "INFO event=load_progress fraction=nan",
        "INFO event=load_progress fraction=x", "INFO fraction=0.5"}) {
    EXPECT_EQ(ParseLoadProgress(line), std::nullopt) << line;
  }
}

TEST(LoadDisplayTest, DrawsABarOfConstantWidth) {
  EXPECT_EQ(FormatBar("m", 0), "Loading m [..............................] 0 %");
  EXPECT_EQ(FormatBar("m", 0.5), "Loading m [###############...............] 50 %");
  EXPECT_EQ(FormatBar("m", 1), "Loading m [##############################] 100 %");
}

}  // namespace
}  // namespace weightless::tools
