// The program itself, under a limit of open files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "common/concat.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

struct Ended {
  int exit_code = -1;
  std::string output;
};

Ended RunWithLimit(const std::string& limit, const std::string& flags) {
  const std::string command =
      Concat("ulimit ", limit, "; exec ", LOADTEST_PROGRAM, " ", flags, " 2>&1");
  Ended ended;
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return ended;
  char text[4096];
  while (fgets(text, sizeof text, pipe) != nullptr) ended.output += text;
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  return ended;
}

TEST(ProgramTest, RefusesStreamsBeyondItsLimitOfOpenFiles) {
  const MockServer server({.ttft_seconds = 0.05});
  const std::string flags = Concat("--url ", server.url().ToString(), " --output-tokens 4");
  const Ended refused = RunWithLimit("-n 64", flags + " --concurrency 100");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.output, ::testing::HasSubstr("--concurrency 100 needs 140 open files"));
  const Ended few = RunWithLimit("-n 64", flags + " --no-audit --concurrency 24");
  EXPECT_THAT(few.output, ::testing::HasSubstr("240 completed, 0 failed"));
}

TEST(ProgramTest, RaisesTheSoftLimitOfOpenFiles) {
  const MockServer server({.ttft_seconds = 0.05});
  const Ended ended = RunWithLimit(
      "-S -n 64",
      Concat("--url ", server.url().ToString(), " --output-tokens 4 --no-audit --concurrency 100"));
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, ::testing::HasSubstr("1000 completed, 0 failed"));
}

// Without a cap no limit can be checked beforehand.
TEST(ProgramTest, FailsTheAuditWhenFilesRunOut) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer opens a pipe to see whether an object may be read";
#endif
  const MockServer server({.ttft_seconds = 0.5});
  const Ended ended = RunWithLimit(
      "-n 64",
      Concat("--url ", server.url().ToString(),
             " --output-tokens 4 --request-rate 500 --arrival constant --num-prompts 100"));
  EXPECT_EQ(ended.exit_code, 3) << ended.output;
  EXPECT_THAT(ended.output, ::testing::HasSubstr("connections found no file or port"));
}

}  // namespace
}  // namespace weightless::loadtest
