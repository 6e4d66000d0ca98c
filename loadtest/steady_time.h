// The one clock of a measurement: monotonic, read right where something happens.
#pragma once

#include <chrono>

namespace weightless::loadtest {

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

inline double Seconds(SteadyClock::duration span) {
  return std::chrono::duration<double>(span).count();
}

inline SteadyClock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace weightless::loadtest
