#include "worker/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "common/log.h"

namespace weightless::worker {
namespace {

sigset_t TakenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

ShutdownSignal::ShutdownSignal(absl::Duration grace) : grace_(grace) {
  const sigset_t signals = TakenSignals();
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

void ShutdownSignal::Wait(const std::function<void()>& on_hangup) {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      serving_ = true;
      mutex_.Await(absl::Condition(
          +[](ShutdownSignal* self)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->signalled_ || self->hung_up_; },
          this));
      if (signalled_) return;
      hung_up_ = false;
    }
    on_hangup();
  }
}

void ShutdownSignal::Watch() {
  const sigset_t signals = TakenSignals();
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
    absl::MutexLock lock(&mutex_);
    hung_up_ = true;
  }
  absl::MutexLock lock(&mutex_);
  if (left_) return;
  LogInfo("stopping", {{"signal", signal}});
  if (!serving_) _exit(0);
  signalled_ = true;
  if (!mutex_.AwaitWithTimeout(absl::Condition(&left_), grace_)) _exit(0);
}

}  // namespace weightless::worker
