// When an open loop sends its requests.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loadtest/config.h"
#include "loadtest/random.h"
#include "loadtest/trace.h"

namespace weightless::loadtest {

// Offsets from the start of the run, in seconds, never falling. The integral of the rate grows by a
// gap of mean 1 from one to the next: constant, exponential (Poisson) or gamma with shape
// `burstiness`. With a ramp the rate goes from start to end over the run: by time when it has a
// duration, else by number of requests.
class Arrivals {
 public:
  struct Extent {
    uint64_t num_requests = 0;
    std::optional<double> duration_seconds;
  };

  // `trace` counts when config.trace_file is set; it must outlive this.
  Arrivals(const ArrivalConfig& config, uint64_t seed, Extent extent,
           const std::vector<TraceEntry>& trace)
      : config_(config), extent_(extent), trace_(trace), random_(seed, kStream) {}

  // Nothing after the last request, or after the end of the duration.
  std::optional<double> Next();

 private:
  static constexpr uint64_t kStream = 0xa11;

  // When the integral of the rate has reached `num_due`.
  double TimeOf(double num_due) const;
  double UnitGap();

  const ArrivalConfig config_;
  const Extent extent_;
  const std::vector<TraceEntry>& trace_;
  Random random_;
  uint64_t num_sent_ = 0;
  double num_due_ = 0;
};

}  // namespace weightless::loadtest
