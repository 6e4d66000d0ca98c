#include "tools/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/concat.h"
#include "common/log.h"

namespace weightless::tools {
namespace {

constexpr int kPollMs = 100;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(5);
// A program that lived for so long starts again without a longer wait.
constexpr absl::Duration kStableAfter = absl::Seconds(10);
// Before all were ready once, a program that signals end so often is given up.
constexpr int kMaxDeaths = 3;
constexpr int kSignalBase = 128;  // exit codes above it tell the signal

int BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  const int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(fd >= 0);
  return fd;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)), signal_fd_(BlockSignals()) {}

Supervisor::~Supervisor() { close(signal_fd_); }

int Supervisor::Run(std::vector<Program> programs) {
  for (Program& program : programs) running_.emplace_back().program = std::move(program);
  for (;;) {
    for (Running& running : running_) {
      if (const auto exit_code = Attend(running)) {
        const std::string program = running.program.name, cause = Cause(running, *exit_code);
        StopAll();
        LogError("first_start_failed",
                 {{"program", program}, {"exit_code", *exit_code}, {"cause", cause}});
        return *exit_code;
      }
    }
    if (!announced_ && AllReady()) {
      announced_ = true;
      options_.on_ready();
    }
    if (WaitForEvent()) return StopAll();
  }
}

bool Supervisor::AllReady() const {
  return std::all_of(running_.begin(), running_.end(), [](const Running& running) {
    return running.watch != nullptr && running.watch->state().was_ready;
  });
}

void Supervisor::Start(Running& running) {
  auto child = ChildProcess::Start(running.program.command, options_.dropped_variables);
  running.start_time = absl::Now();
  running.killed = false;
  if (!child.ok()) {  // out of processes or memory: try again later
    LogError("start_failed",
             {{"program", running.program.name}, {"error", std::string(child.status().message())}});
    running.start_time += kMaxBackoff;
    return;
  }
  running.child = *std::move(child);
  running.watch = std::make_unique<Watch>(running.program.make_probe(), options_.probe_interval);
  LogInfo("program_started", {{"program", running.program.name}, {"pid", running.child->pid()}});
}

std::optional<int> Supervisor::Attend(Running& running) {
  if (running.child == nullptr) {
    if (absl::Now() >= running.start_time) Start(running);
    return std::nullopt;
  }
  const std::optional<int> exit_code = running.child->TryWait();
  ForwardLines(running);
  if (exit_code) {
    const int code = HandleExit(running, *exit_code);
    if (code != 0) return code;
    return std::nullopt;
  }
  const Watch::State state = running.watch->state();
  if (state.was_ready && state.silence >= options_.silence_limit && !running.killed) {
    LogWarning("program_hangs", {{"program", running.program.name},
                                 {"silent_s", absl::ToDoubleSeconds(state.silence)}});
    running.child->Signal(SIGKILL);
    running.killed = true;
  }
  return std::nullopt;
}

int Supervisor::HandleExit(Running& running, int exit_code) {
  const absl::Duration lived = absl::Now() - running.start_time;
  LogWarning("program_ended", {{"program", running.program.name},
                               {"exit_code", exit_code},
                               {"lived_s", absl::ToDoubleSeconds(lived)}});
  running.child.reset();
  running.watch.reset();
  const bool by_signal = exit_code > kSignalBase;
  if (by_signal && !running.killed) ++running.num_deaths;
  if (!announced_ && (!by_signal || running.num_deaths >= kMaxDeaths)) {
    return std::max(exit_code, 1);
  }
  running.backoff = lived >= kStableAfter || running.backoff == absl::ZeroDuration()
                        ? kFirstBackoff
                        : std::min(running.backoff * 2, kMaxBackoff);
  running.start_time = absl::Now() + running.backoff;
  return 0;
}

std::string Supervisor::Cause(const Running& running, int exit_code) {
  if (exit_code <= kSignalBase) return running.last_line;
  const int number = exit_code - kSignalBase;
  return Concat("ended ", running.num_deaths, " times by signal ", number, " (", strsignal(number),
                "): ", number == SIGKILL ? "memory may have run out" : running.last_line);
}

void Supervisor::ForwardLines(Running& running) {
  for (const std::string& line : running.child->TakeLines()) {
    options_.on_line(running.program.name, line);
    running.last_line = line;
  }
}

bool Supervisor::WaitForEvent() {
  std::vector<pollfd> fds = {{.fd = signal_fd_, .events = POLLIN, .revents = 0}};
  for (const Running& running : running_) {
    if (running.child == nullptr) continue;
    fds.push_back({.fd = running.child->error_fd(), .events = POLLIN, .revents = 0});
  }
  poll(fds.data(), fds.size(), kPollMs);
  bool stop = false, hang_up = false;
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    stop |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
    hang_up |= info.ssi_signo == SIGHUP;
  }
  for (const Running& running : running_) {
    if (hang_up && running.child != nullptr) running.child->Signal(SIGHUP);
  }
  return stop;
}

int Supervisor::StopAll() {
  int last_stage = 0;
  for (Running& running : running_) {
    running.watch.reset();
    last_stage = std::max(last_stage, running.program.stop_stage);
  }
  bool clean = true;
  for (int stage = 0; clean && stage <= last_stage; ++stage) clean = StopStage(stage);
  running_.clear();  // kills what is left
  return clean ? 0 : 1;
}

bool Supervisor::StopStage(int stage) {
  const auto attend = [&](Running& running) {
    if (running.child == nullptr) return;
    const auto exit_code = running.child->TryWait();
    ForwardLines(running);
    if (!exit_code) return;
    LogInfo("program_stopped", {{"program", running.program.name}, {"exit_code", *exit_code}});
    running.child.reset();
  };
  const auto is_running = [&](const Running& running) {
    return running.program.stop_stage == stage && running.child != nullptr;
  };
  for (Running& running : running_) {
    if (!is_running(running)) continue;
    running.child->Signal(SIGTERM);
    running.child->Signal(SIGCONT);  // should it have been stopped
  }
  const absl::Time deadline = absl::Now() + options_.stop_limit;
  while (std::any_of(running_.begin(), running_.end(), is_running)) {
    const bool again = WaitForEvent();
    for (Running& running : running_) attend(running);
    if (again || absl::Now() > deadline) return false;
  }
  return true;
}

}  // namespace weightless::tools
