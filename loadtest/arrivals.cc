#include "loadtest/arrivals.h"

#include <algorithm>
#include <cmath>

namespace weightless::loadtest {

std::optional<double> Arrivals::Next() {
  if (num_sent_ >= extent_.num_requests) return std::nullopt;
  if (!config_.trace_file.empty()) {
    if (num_sent_ >= trace_.size()) return std::nullopt;
    now_ = trace_[num_sent_].offset_seconds;
  } else if (num_sent_ > 0) {  // the first request starts the run
    now_ += UnitGap() / Rate();
  }
  ++num_sent_;
  if (extent_.duration_seconds && now_ >= *extent_.duration_seconds) return std::nullopt;
  return now_;
}

double Arrivals::Rate() const {
  if (config_.ramp == RampKind::kNone) return config_.rate.value_or(1);
  const double done =
      extent_.duration_seconds
          ? now_ / *extent_.duration_seconds
          : static_cast<double>(num_sent_ - 1) /
                static_cast<double>(std::max<uint64_t>(extent_.num_requests - 1, 1));
  const double share = std::clamp(done, 0.0, 1.0);
  if (config_.ramp == RampKind::kLinear) {
    return config_.ramp_start_rate + share * (config_.ramp_end_rate - config_.ramp_start_rate);
  }
  return config_.ramp_start_rate * std::pow(config_.ramp_end_rate / config_.ramp_start_rate, share);
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
