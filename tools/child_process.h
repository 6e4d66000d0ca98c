// A process we start, whose standard error we read.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::tools {

// Owned by the thread that started it, which must outlive it: the child is killed when that thread
// ends, so that no process outlives the one that started it, however that one dies.
class ChildProcess {
 public:
  // Runs command[0], a path, with the arguments that follow and the environment less the variables
  // named in `dropped_variables`; its own process group, no standard input, all signals unblocked.
  // An executable that cannot be run ends with exit code 127.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& command, const std::vector<std::string>& dropped_variables);

  // Kills and reaps what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The reading end of its standard error; does not block.
  int error_fd() const { return error_fd_; }
  // Complete lines that have arrived on it since the last call.
  std::vector<std::string> TakeLines();
  void Signal(int number) const;
  // Its exit code, or 128 + the signal that ended it; nothing while it runs.
  std::optional<int> TryWait();

 private:
  ChildProcess(pid_t pid, int error_fd) : pid_(pid), error_fd_(error_fd) {}

  const pid_t pid_;
  const int error_fd_;
  std::string partial_line_;
  std::optional<int> exit_code_;
};

}  // namespace weightless::tools
