#include "worker/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "common/log.h"

namespace weightless::worker {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

ShutdownSignal::ShutdownSignal(absl::Duration grace) : grace_(grace) {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Watch(); });
  pthread_setname_np(thread_.native_handle(), "shutdown");
}

ShutdownSignal::~ShutdownSignal() {
  {
    absl::MutexLock lock(&mutex_);
    left_ = true;
  }
  // In case it still waits for one. All threads have the signal blocked: it ends nothing.
  pthread_kill(thread_.native_handle(), SIGTERM);  // NOLINT(bugprone-bad-signal-to-kill-thread)
  thread_.join();
}

void ShutdownSignal::Wait() {
  absl::MutexLock lock(&mutex_);
  serving_ = true;
  mutex_.Await(absl::Condition(&signalled_));
}

void ShutdownSignal::Watch() {
  const sigset_t signals = StopSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  absl::MutexLock lock(&mutex_);
  if (left_) return;
  LogInfo("stopping", {{"signal", signal}});
  if (!serving_) _exit(0);
  signalled_ = true;
  if (!mutex_.AwaitWithTimeout(absl::Condition(&left_), grace_)) _exit(0);
}

}  // namespace weightless::worker
