#include "loadtest/arrivals.h"

#include <algorithm>
#include <cmath>

namespace weightless::loadtest {
namespace {

// A rate from `start` to `end`, which differ, over `extent`: seconds or requests.
struct Ramp {
  double start;
  double end;
  double extent;
};

// log(1 + x), also for an x past the end of a ramp that falls: then so small that the time it makes
// lies past that end, too (rates differ by at most a factor of 1e12).
double LogOfOnePlus(double x) { return std::log1p(std::max(x, -1 + 1e-15)); }

// The time t at which the integral of the rate from 0 to t is `num_due`:
//   linear       start t + (end - start) t^2 / (2 extent)
//   exponential  start (e^(c t) - 1) / c, c = log(end / start) / extent
double TimeOnTimedRamp(const Ramp& ramp, bool is_linear, double num_due) {
  if (is_linear) {
    const double k = (ramp.end - ramp.start) / (2 * ramp.extent);
    const double root = std::sqrt(std::max(ramp.start * ramp.start + 4 * k * num_due, 0.0));
    return 2 * num_due / (ramp.start + root);
  }
  const double c = std::log(ramp.end / ramp.start) / ramp.extent;
  return LogOfOnePlus(c * num_due / ramp.start) / c;
}

// The integral of 1 / rate from 0 to `num_due`, where the rate is
//   linear       start + s n, s = (end - start) / extent
//   exponential  start e^(c n), c = log(end / start) / extent
double TimeOnCountedRamp(const Ramp& ramp, bool is_linear, double num_due) {
  if (is_linear) {
    const double s = (ramp.end - ramp.start) / ramp.extent;
    return LogOfOnePlus(s * num_due / ramp.start) / s;
  }
  const double c = std::log(ramp.end / ramp.start) / ramp.extent;
  return -std::expm1(-c * num_due) / (ramp.start * c);
}

}  // namespace

std::optional<double> Arrivals::Next() {
  if (num_sent_ >= extent_.num_requests) return std::nullopt;
  double now = 0;
  if (!config_.trace_file.empty()) {
    if (num_sent_ >= trace_.size()) return std::nullopt;
    now = trace_[num_sent_].offset_seconds;
  } else if (num_sent_ > 0) {  // the first request starts the run
    num_due_ += UnitGap();
    now = TimeOf(num_due_);
  }
  ++num_sent_;
  if (extent_.duration_seconds && now >= *extent_.duration_seconds) return std::nullopt;
  return now;
}

double Arrivals::TimeOf(double num_due) const {
  const double a = config_.ramp_start_rate;
  const double b = config_.ramp_end_rate;
  if (config_.ramp == RampKind::kNone) return num_due / config_.rate.value_or(1);
  if (a == b) return num_due / a;
  const bool is_linear = config_.ramp == RampKind::kLinear;
  if (const auto seconds = extent_.duration_seconds) {
    return TimeOnTimedRamp({a, b, *seconds}, is_linear, num_due);
  }
  const auto last = static_cast<double>(std::max<uint64_t>(extent_.num_requests, 2) - 1);
  const double on_ramp = std::min(num_due, last);
  return TimeOnCountedRamp({a, b, last}, is_linear, on_ramp) + (num_due - on_ramp) / b;
}

double Arrivals::UnitGap() {
  switch (config_.kind) {
    case ArrivalKind::kConstant:
      return 1;
    case ArrivalKind::kGamma:
      return random_.Gamma(config_.burstiness) / config_.burstiness;
    case ArrivalKind::kPoisson:
      break;
  }
  return random_.Exponential();
}

}  // namespace weightless::loadtest
