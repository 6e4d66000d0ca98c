// Shows on stderr how far the weights are: a bar on a terminal, else a log line for every quarter.
#pragma once

#include "worker/weights.h"

namespace weightless::worker {

// For one load.
LoadProgress ShowLoadProgress();

}  // namespace weightless::worker
