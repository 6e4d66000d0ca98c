// Keeps a set of programs running: starts each again when it dies or no longer answers, and stops
// them in order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/child_process.h"
#include "tools/probe.h"

namespace weightless::tools {

struct Program {
  std::string name;  // for the log
  std::vector<std::string> command;
  // Makes the probe of one run of the program.
  std::function<Probe()> make_probe;
  int stop_stage = 0;  // stage 0 has ended before stage 1 is told to
};

struct SupervisorOptions {
  // A program that was ready and then gives no answer for so long is killed. While it loads it may
  // be silent.
  absl::Duration silence_limit = absl::Seconds(3);
  absl::Duration probe_interval = absl::Seconds(1);
  absl::Duration stop_limit = absl::Seconds(60);  // per stage; then it is killed
  std::vector<std::string> dropped_variables;     // of the children's environment
  std::function<void()> on_ready;                 // all are ready; called once
  std::function<void(const std::string& program, const std::string& line)> on_line;
};

// Owned by the main thread. Construct before any other thread starts: it blocks SIGTERM, SIGINT,
// SIGHUP and SIGCHLD in this thread and those made from it, and takes them from then on.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Blocks until SIGTERM or SIGINT, then stops every program: 0, or 1 when one had to be killed (a
  // second signal kills at once). Ends before that only when a program ends by itself before all
  // were ready once, or signals end it three times: the same settings would fail again, so its exit
  // code, or 128 + the signal, is returned after a log line that tells the cause. SIGHUP goes on to
  // the programs, which read their certificates and keys again.
  int Run(std::vector<Program> programs);

 private:
  struct Running {
    Program program;
    std::unique_ptr<ChildProcess> child;  // null: to be started at start_time
    std::unique_ptr<Watch> watch;
    absl::Time start_time = absl::InfinitePast();
    absl::Duration backoff;
    int num_deaths = 0;     // by signals that were not ours
    bool killed = false;    // because it did not answer
    std::string last_line;  // it printed
  };

  bool AllReady() const;
  void Start(Running& running);
  // Reads what it printed and restarts it when it has to; an exit code when that is pointless.
  std::optional<int> Attend(Running& running);
  // 0: it will be started again.
  int HandleExit(Running& running, int exit_code);
  // Why it is given up: the last line it printed, or the signal.
  static std::string Cause(const Running& running, int exit_code);
  void ForwardLines(Running& running);
  // Sleeps until a signal, a line or the time-out; whether SIGTERM or SIGINT came. Passes SIGHUP
  // on.
  bool WaitForEvent();
  int StopAll();
  // Whether all programs of the stage ended when told to.
  bool StopStage(int stage);

  const SupervisorOptions options_;
  const int signal_fd_;
  std::vector<Running> running_;
  bool announced_ = false;
};

}  // namespace weightless::tools
