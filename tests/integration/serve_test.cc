// `weightless` as its user meets it: real processes, real ports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/concat.h"
#include "tools/child_process.h"
#include "tools/ports.h"
#include "tools/probe.h"

namespace weightless::tools {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);  // no measurement: busy machines are slow

// A run of `weightless` whose both outputs are read as lines.
class Weightless {
 public:
  explicit Weightless(const std::string& arguments) {
    const std::string command = Concat("exec '", WEIGHTLESS_PROGRAM, "' ", arguments, " 1>&2");
    child_ = *ChildProcess::Start({"/bin/sh", "-c", command}, {});
  }

  // The rest of the first line that holds `text` and was not found before; nothing when the program
  // ends or patience does.
  std::optional<std::string> WaitForLine(const std::string& text) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const bool ended = child_->TryWait().has_value();
      Read();
      for (; next_line_ < lines_.size(); ++next_line_) {
        const size_t found = lines_[next_line_].find(text);
        if (found == std::string::npos) continue;
        return lines_[next_line_++].substr(found + text.size());
      }
      if (ended) return std::nullopt;
    }
    return std::nullopt;
  }

  int WaitForExit() {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!child_->TryWait() && absl::Now() < deadline) Read();
    Read();
    return child_->TryWait().value_or(-1);
  }

  void Signal(int number) { child_->Signal(number); }
  std::string output() const {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }

 private:
  void Read() {
    pollfd fd = {.fd = child_->error_fd(), .events = POLLIN, .revents = 0};
    poll(&fd, 1, 50);
    for (std::string& line : child_->TakeLines()) lines_.push_back(std::move(line));
  }

  std::unique_ptr<ChildProcess> child_;
  std::vector<std::string> lines_;
  size_t next_line_ = 0;
};

bool IsAlive(pid_t pid) { return kill(pid, 0) == 0; }

// The process id in "... event=program_started program=NAME pid=N", the next such line.
pid_t WaitForStart(Weightless& serve, const std::string& name) {
  const auto rest = serve.WaitForLine(Concat("event=program_started program=", name, " pid="));
  return rest ? static_cast<pid_t>(std::stoi(*rest)) : -1;
}

TEST(ServeTest, DrainsOnSigterm) {
  Weightless serve("serve --port 0 --workers 2");
  const pid_t worker = WaitForStart(serve, "worker-0");
  const pid_t router = WaitForStart(serve, "router");
  const auto port = serve.WaitForLine("  URL    http://127.0.0.1:");
  ASSERT_TRUE(port) << serve.output();
  EXPECT_EQ(HttpReadyProbe("127.0.0.1", std::stoi(*port))(), ProbeResult::kReady);
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.WaitForExit(), 0) << serve.output();
  EXPECT_FALSE(IsAlive(worker));
  EXPECT_FALSE(IsAlive(router));
}

TEST(ServeTest, RestartsAWorkerThatIsKilledAndOneThatHangs) {
  Weightless serve("serve --port 0 --workers 2");
  const pid_t killed = WaitForStart(serve, "worker-0");
  const pid_t hanging = WaitForStart(serve, "worker-1");
  ASSERT_TRUE(serve.WaitForLine("Stop")) << serve.output();

  kill(killed, SIGKILL);
  EXPECT_GT(WaitForStart(serve, "worker-0"), 0) << serve.output();
  EXPECT_TRUE(serve.WaitForLine("event=worker_ready")) << serve.output();

  kill(hanging, SIGSTOP);
  EXPECT_TRUE(serve.WaitForLine("event=program_hangs program=worker-1")) << serve.output();
  EXPECT_GT(WaitForStart(serve, "worker-1"), 0) << serve.output();
  EXPECT_TRUE(serve.WaitForLine("event=worker_ready")) << serve.output();
  EXPECT_FALSE(IsAlive(hanging));
}

TEST(ServeTest, RestartsTheRouterOnItsPort) {
  Weightless serve("serve --port 0");
  const pid_t router = WaitForStart(serve, "router");
  const auto port = serve.WaitForLine("  URL    http://127.0.0.1:");
  ASSERT_TRUE(port) << serve.output();
  kill(router, SIGKILL);
  EXPECT_GT(WaitForStart(serve, "router"), 0) << serve.output();
  EXPECT_TRUE(serve.WaitForLine("event=worker_ready")) << serve.output();
  const Probe probe = HttpReadyProbe("127.0.0.1", std::stoi(*port));
  const absl::Time deadline = absl::Now() + kPatience;
  while (probe() != ProbeResult::kReady && absl::Now() < deadline) {
  }
  EXPECT_EQ(probe(), ProbeResult::kReady);
}

TEST(ServeTest, NoProcessOutlivesIt) {
  Weightless serve("serve --port 0");
  std::vector<pollfd> processes;
  for (const char* name : {"worker-0", "router"}) {
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, WaitForStart(serve, name), 0));
    ASSERT_GE(fd, 0);
    processes.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  serve.Signal(SIGKILL);
  for (pollfd& process : processes) {
    EXPECT_EQ(poll(&process, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1);
    close(process.fd);
  }
}

TEST(ServeTest, NamesThePortInUse) {
  Weightless first("serve --port 0");
  const auto port = first.WaitForLine("  URL    http://127.0.0.1:");
  ASSERT_TRUE(port) << first.output();
  const std::string number = port->substr(0, port->find('/'));
  Weightless second(Concat("serve --port ", number));
  EXPECT_EQ(second.WaitForExit(), 2);
  EXPECT_THAT(second.output(), HasSubstr(Concat("127.0.0.1:", number)));
}

TEST(ServeTest, ListensOnAnIpv6Address) {
  if (!ProbePort("::1", 0).ok()) GTEST_SKIP() << "this machine has no IPv6";
  Weightless serve("serve --port 0 --host ::1");
  const auto port = serve.WaitForLine("  URL    http://[::1]:");
  ASSERT_TRUE(port) << serve.output();
  EXPECT_EQ(HttpReadyProbe("::1", std::stoi(*port))(), ProbeResult::kReady);
}

TEST(ServeTest, NamesAMissingModel) {
  Weightless serve("serve --port 0 --model /nowhere/model");
  EXPECT_EQ(serve.WaitForExit(), 2);
  EXPECT_THAT(serve.output(), HasSubstr("/nowhere/model"));
}

TEST(ServeTest, EndsWhenAWorkerRefusesItsFlags) {
  Weightless serve("serve --port 0 --dtype float8");
  EXPECT_EQ(serve.WaitForExit(), 2);
  const std::string output = serve.output();
  const size_t last_line = output.rfind('\n', output.size() - 2) + 1;
  EXPECT_THAT(output.substr(last_line), HasSubstr("float8"));
}

TEST(ServeTest, NamesAnUnknownFlag) {
  Weightless serve("serve --prot 0");
  EXPECT_EQ(serve.WaitForExit(), 2);
  EXPECT_THAT(serve.output(), HasSubstr("--prot"));
}

TEST(GenerateTest, AnswersAsAChat) {
  Weightless generate("generate --chat --prompt 'Define: ocean'");
  EXPECT_EQ(generate.WaitForExit(), 0);
  EXPECT_THAT(generate.output(), HasSubstr("ocean (noun): a large body of water"));
  EXPECT_THAT(generate.output(), HasSubstr("tokens/s"));
}

TEST(BenchTest, ReportsPrefillAndDecode) {
  Weightless bench("bench --prompt-tokens 16 --batch 1,2 --context 8 --decode-steps 2 --repeats 1");
  EXPECT_EQ(bench.WaitForExit(), 0);
  EXPECT_THAT(bench.output(), HasSubstr("prefill"));
  EXPECT_THAT(bench.output(), HasSubstr("decode"));
}

TEST(WeightlessTest, NamesAnUnknownSubcommand) {
  Weightless program("sevre");
  EXPECT_EQ(program.WaitForExit(), 2);
  EXPECT_THAT(program.output(), HasSubstr("sevre"));
}

}  // namespace
}  // namespace weightless::tools
