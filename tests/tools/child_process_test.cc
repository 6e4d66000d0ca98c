#include "tools/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <cstdlib>

namespace weightless::tools {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<ChildProcess> StartShell(const std::string& script,
                                         const std::vector<std::string>& dropped = {}) {
  return *ChildProcess::Start({"/bin/sh", "-c", script}, dropped);
}

// Waits for the process by its standard error, which closes when it ends.
int WaitForExit(ChildProcess& child, std::vector<std::string>* lines = nullptr) {
  for (;;) {
    const std::optional<int> exit_code = child.TryWait();
    for (const std::string& line : child.TakeLines()) {
      if (lines != nullptr) lines->push_back(line);
    }
    if (exit_code) return *exit_code;
    pollfd fd = {.fd = child.error_fd(), .events = POLLIN, .revents = 0};
    poll(&fd, 1, 100);
  }
}

TEST(ChildProcessTest, GivesLinesOfStandardErrorAndTheExitCode) {
  const auto child = StartShell("echo one >&2; printf 'two\\nthree' >&2; exit 3");
  std::vector<std::string> lines;
  EXPECT_EQ(WaitForExit(*child, &lines), 3);
  EXPECT_THAT(lines, ElementsAre("one", "two"));  // the last was not complete
}

TEST(ChildProcessTest, ReportsTheSignalThatEndedIt) {
  const auto child = StartShell("kill -9 $$");
  EXPECT_EQ(WaitForExit(*child), 128 + SIGKILL);
}

TEST(ChildProcessTest, ReportsAProgramThatCannotBeRun) {
  const auto child = *ChildProcess::Start({"/nowhere/program"}, {});
  EXPECT_EQ(WaitForExit(*child), 127);
}

TEST(ChildProcessTest, DropsTheNamedVariables) {
  setenv("WEIGHTLESS_TEST_DROPPED", "1", 1);
  setenv("WEIGHTLESS_TEST_KEPT", "2", 1);
  const auto child = StartShell("echo ${WEIGHTLESS_TEST_DROPPED-none}$WEIGHTLESS_TEST_KEPT >&2",
                                {"WEIGHTLESS_TEST_DROPPED"});
  std::vector<std::string> lines;
  EXPECT_EQ(WaitForExit(*child, &lines), 0);
  EXPECT_THAT(lines, ElementsAre("none2"));
}

TEST(ChildProcessTest, IsKilledWithItsOwner) {
  auto child = StartShell("trap '' TERM; while :; do :; done");
  const pid_t pid = child->pid();
  child->Signal(SIGTERM);
  EXPECT_EQ(child->TryWait(), std::nullopt);
  child.reset();
  EXPECT_EQ(kill(pid, 0), -1);  // gone and reaped
}

}  // namespace
}  // namespace weightless::tools
