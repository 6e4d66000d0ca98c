#include "tools/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <memory>

namespace weightless::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

constexpr char kWait[] = "echo up >&2; exec sleep 1000";

Program Shell(const std::string& name, const std::string& script, int stop_stage = 0) {
  return {.name = name,
          .command = {"/bin/sh", "-c", script},
          .make_probe = [] { return [] { return ProbeResult::kReady; }; },
          .stop_stage = stop_stage};
}

SupervisorOptions Options() {
  SupervisorOptions options;
  options.probe_interval = absl::Milliseconds(1);
  options.on_ready = [] {};
  options.on_line = [](const std::string&, const std::string&) {};
  return options;
}

// To this thread, which has it blocked; threads of other tests may not.
void Stop() { raise(SIGTERM); }

TEST(SupervisorTest, StopsEverythingOnASignal) {
  SupervisorOptions options = Options();
  options.on_ready = Stop;
  Supervisor supervisor(options);
  EXPECT_EQ(supervisor.Run({Shell("a", kWait), Shell("b", kWait)}), 0);
}

TEST(SupervisorTest, StopsStageByStage) {
  SupervisorOptions options = Options();
  std::vector<std::string> stopped;
  std::atomic<int> num_up = 0;
  options.on_ready = Stop;
  options.on_line = [&](const std::string& program, const std::string& line) {
    if (line == "up") ++num_up;
    if (line == "bye") stopped.push_back(program);
  };
  // It is up when the trap is set.
  const std::string script =
      "trap 'echo bye >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.01; done";
  Program worker = Shell("worker", script, 1), router = Shell("router", script, 0);
  worker.make_probe = router.make_probe = [&num_up] {
    return [&num_up] { return num_up == 2 ? ProbeResult::kReady : ProbeResult::kNotReady; };
  };
  Supervisor supervisor(options);
  EXPECT_EQ(supervisor.Run({worker, router}), 0);
  EXPECT_THAT(stopped, ElementsAre("router", "worker"));
}

TEST(SupervisorTest, PassesHangUpOn) {
  SupervisorOptions options = Options();
  std::vector<std::string> told;
  std::atomic<int> num_up = 0;
  options.on_ready = [] { raise(SIGHUP); };
  options.on_line = [&](const std::string& program, const std::string& line) {
    if (line == "up") ++num_up;
    if (line == "hup") told.push_back(program);
    if (told.size() == 2) Stop();
  };
  // It is up when the trap is set.
  const std::string script = "trap 'echo hup >&2' HUP; echo up >&2; while :; do sleep 0.01; done";
  Program a = Shell("a", script), b = Shell("b", script);
  a.make_probe = b.make_probe = [&num_up] {
    return [&num_up] { return num_up == 2 ? ProbeResult::kReady : ProbeResult::kNotReady; };
  };
  Supervisor supervisor(options);
  EXPECT_EQ(supervisor.Run({a, b}), 0);
  EXPECT_THAT(told, testing::UnorderedElementsAre("a", "b"));
}

TEST(SupervisorTest, RestartsWhatDies) {
  SupervisorOptions options = Options();
  int num_starts = 0;
  options.on_line = [&](const std::string& program, const std::string& line) {
    if (program == "dies" && line.rfind("pid ", 0) == 0) {
      if (++num_starts == 2) return Stop();
      kill(std::stoi(line.substr(4)), SIGKILL);
    }
  };
  Supervisor supervisor(options);
  EXPECT_EQ(
      supervisor.Run({Shell("dies", "echo pid $$ >&2; exec sleep 1000"), Shell("lives", kWait)}),
      0);
  EXPECT_EQ(num_starts, 2);
}

// Ready once, silent afterwards; ready again in its second run.
TEST(SupervisorTest, KillsAndRestartsWhatNoLongerAnswers) {
  SupervisorOptions options = Options();
  options.silence_limit = absl::Nanoseconds(1);
  int num_starts = 0;
  options.on_line = [&](const std::string&, const std::string&) {
    if (++num_starts == 2) Stop();
  };
  Program program = Shell("hangs", kWait);
  program.make_probe = [] {
    return [count = std::make_shared<std::atomic<int>>(0)] {
      return (*count)++ == 0 ? ProbeResult::kReady : ProbeResult::kSilent;
    };
  };
  Supervisor supervisor(options);
  supervisor.Run({program});
  EXPECT_EQ(num_starts, 2);
}

TEST(SupervisorTest, LetsALoadingProgramBeSilent) {
  SupervisorOptions options = Options();
  options.silence_limit = absl::Nanoseconds(1);
  int num_starts = 0;
  options.on_line = [&](const std::string&, const std::string&) { ++num_starts; };
  options.on_ready = Stop;
  Program program = Shell("loads", kWait);
  program.make_probe = [] {
    return [count = std::make_shared<std::atomic<int>>(0)] {
      return (*count)++ < 2 ? ProbeResult::kSilent : ProbeResult::kReady;
    };
  };
  Supervisor supervisor(options);
  EXPECT_EQ(supervisor.Run({program}), 0);
  EXPECT_EQ(num_starts, 1);
}

TEST(SupervisorTest, GivesUpWhenTheFirstStartFails) {
  Program never_ready = Shell("waits", kWait);
  never_ready.make_probe = [] { return [] { return ProbeResult::kNotReady; }; };
  Supervisor supervisor(Options());
  testing::internal::CaptureStderr();
  EXPECT_EQ(supervisor.Run({never_ready, Shell("fails", "echo one >&2; echo two >&2; exit 2")}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              EndsWith("event=first_start_failed program=fails exit_code=2 cause=two\n"));
}

TEST(SupervisorTest, GivesUpWhatSignalsEndBeforeItIsReady) {
  Program dies = Shell("dies", "kill -9 $$");
  dies.make_probe = [] { return [] { return ProbeResult::kNotReady; }; };
  Supervisor supervisor(Options());
  testing::internal::CaptureStderr();
  EXPECT_EQ(supervisor.Run({dies}), 128 + SIGKILL);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              EndsWith("event=first_start_failed program=dies exit_code=137 cause=\"ended 3 times "
                       "by signal 9 (Killed): memory may have run out\"\n"));
}

TEST(SupervisorTest, NamesTheLastWordsOfWhatASignalEnds) {
  Program aborts = Shell("aborts", "echo broken >&2; kill -ABRT $$");
  aborts.make_probe = [] { return [] { return ProbeResult::kNotReady; }; };
  Supervisor supervisor(Options());
  testing::internal::CaptureStderr();
  EXPECT_EQ(supervisor.Run({aborts}), 128 + SIGABRT);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              EndsWith("cause=\"ended 3 times by signal 6 (Aborted): broken\"\n"));
}

TEST(SupervisorTest, KillsWhatDoesNotStopInTime) {
  SupervisorOptions options = Options();
  options.stop_limit = absl::ZeroDuration();
  options.on_ready = Stop;
  Supervisor supervisor(options);
  EXPECT_EQ(supervisor.Run({Shell("stubborn", "trap '' TERM; while :; do sleep 1; done")}), 1);
}

}  // namespace
}  // namespace weightless::tools
