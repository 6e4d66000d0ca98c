#include "tools/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "common/concat.h"

namespace weightless::tools {
namespace {

// A line longer than this is cut; nobody logs such a line on purpose.
constexpr size_t kMaxLineBytes = 64 * 1024;

std::vector<std::string> Environment(const std::vector<std::string>& dropped) {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    const std::string name(entry.substr(0, entry.find('=')));
    if (std::find(dropped.begin(), dropped.end(), name) == dropped.end()) kept.emplace_back(entry);
  }
  return kept;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec only async-signal-safe calls are allowed: other threads may hold any lock.
[[noreturn]] void RunChild(pid_t parent, int error_fd, char* const* argv, char* const* envp) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the call above
  setpgid(0, 0);                        // Ctrl-C reaches the parent alone, which drains in order
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  dup2(error_fd, STDERR_FILENO);
  execve(argv[0], argv, envp);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& command, const std::vector<std::string>& dropped_variables) {
  std::array<int, 2> error_pipe{};
  if (pipe2(error_pipe.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, Concat("no pipe for ", command[0]));
  }
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = Environment(dropped_variables);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(parent, error_pipe[1], argv.data(), envp.data());
  const int fork_error = errno;
  close(error_pipe[1]);
  if (pid < 0) {
    close(error_pipe[0]);
    return absl::ErrnoToStatus(fork_error, Concat("cannot start ", command[0]));
  }
  fcntl(error_pipe[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, error_pipe[0]));
}

ChildProcess::~ChildProcess() {
  if (!TryWait()) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(error_fd_);
}

std::vector<std::string> ChildProcess::TakeLines() {
  std::vector<std::string> lines;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = read(error_fd_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return lines;
    for (const char c : std::string_view(buffer.data(), static_cast<size_t>(count))) {
      if (c != '\n' && partial_line_.size() < kMaxLineBytes) {
        partial_line_ += c;
      } else if (c == '\n') {
        lines.push_back(std::exchange(partial_line_, {}));
      }
    }
  }
}

void ChildProcess::Signal(int number) const {
  if (!exit_code_) kill(pid_, number);
}

std::optional<int> ChildProcess::TryWait() {
  if (exit_code_) return exit_code_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return exit_code_;
}

}  // namespace weightless::tools
