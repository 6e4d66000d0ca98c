#include "loadtest/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace weightless::loadtest {
namespace {

// In a process of its own, which ends with 0 unless a signal ends it.
void RaiseTwice(int first, int second, useconds_t pause_us) {
  CatchInterrupts();
  if (IsInterrupted()) std::_Exit(1);
  raise(first);
  if (!IsInterrupted()) std::_Exit(2);
  usleep(pause_us);
  raise(second);
  std::_Exit(0);
}

TEST(InterruptTest, TwoSignalsAtOnceAreOneWish) {
  EXPECT_EXIT(RaiseTwice(SIGTERM, SIGINT, 0), ::testing::ExitedWithCode(0), "");
}

TEST(InterruptTest, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(RaiseTwice(SIGINT, SIGINT, 600'000), ::testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace weightless::loadtest
