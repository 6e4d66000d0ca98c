#include "loadtest/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace weightless::loadtest {
namespace {

constexpr int kInterruptedExitCode = 130;
constexpr int64_t kSameWishNs = 500'000'000;

// Of the first signal; 0: none. A signal handler reaches nothing but globals.
std::atomic<int64_t> interrupted_at_ns = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler takes no lock");

void OnSignal(int /*number*/) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  int64_t first_ns = 0;
  if (interrupted_at_ns.compare_exchange_strong(first_ns, now_ns)) return;
  if (now_ns - first_ns > kSameWishNs) _exit(kInterruptedExitCode);
}

}  // namespace

void CatchInterrupts() {
  interrupted_at_ns = 0;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool IsInterrupted() { return interrupted_at_ns != 0; }

}  // namespace weightless::loadtest
