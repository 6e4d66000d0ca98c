#include "router/stall_meter.h"

#include <algorithm>

#include "common/check.h"

namespace weightless::router {

bool StallMeter::OnSent(absl::Time now, bool continues) {
  const bool is_late = in_flight_.empty() && continues;
  in_flight_.push_back({.sent_at = now, .continues = continues});
  return is_late;
}

bool StallMeter::OnResult(absl::Time now, absl::Duration on_device) {
  CHECK(!in_flight_.empty());
  const Plan done = in_flight_.front();
  in_flight_.pop_front();
  const absl::Duration round_trip = now - done.sent_at - std::max(on_device, absl::ZeroDuration());
  transit_ = std::min(transit_, std::max(round_trip, absl::ZeroDuration()));
  if (in_flight_.empty()) return false;  // OnSent will tell
  const Plan& next = in_flight_.front();
  return next.continues && next.sent_at > now - transit_;
}

}  // namespace weightless::router
