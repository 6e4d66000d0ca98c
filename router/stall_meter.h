// Finds out, on the router's side alone, whether a worker had to wait for a plan.
//
// The transit time is the least time ever seen between sending a plan and receiving its result,
// less the time on the device. A plan sent later than one transit time before the result of the
// step before it came in must have reached the worker after that step was over:
//
//   router   --plan 1--                          --result 1-->  --plan 2-- (too late: stall)
//   worker             [== step 1 on the device ==]  idle ......          [== step 2 ...
//
// Only plans that go on with sequences which ran already count: otherwise there was nothing to
// plan.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace weightless::router {

// One connection to one worker. Owned by the engine thread.
class StallMeter {
 public:
  // A plan is sent. True: it comes late.
  bool OnSent(absl::Time now, bool continues);
  // The oldest plan's result is here. True: the plan after it, sent before, came late.
  bool OnResult(absl::Time now, absl::Duration on_device);

 private:
  struct Plan {
    absl::Time sent_at;
    bool continues = false;
  };

  std::deque<Plan> in_flight_;
  absl::Duration transit_ = absl::InfiniteDuration();
};

}  // namespace weightless::router
