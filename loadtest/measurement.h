// A whole session: asks the server what it serves, warms up, runs, audits and compares.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "loadtest/config.h"
#include "loadtest/report.h"

namespace weightless::loadtest {

// Blocks until all runs of `config` (one, or those of --sweep) are done or the user ends them;
// catches the signals that say so from the first run on (loadtest/interrupt.h).
// Errors are those that leave nothing to report: no server, no model, bad dataset, and a warm-up of
// which every request failed.
absl::StatusOr<Session> Measure(const Config& config);

// What the program exits with: 130 interrupted, 1 nothing completed (but 3 when streams ended
// without their end), 3 the audit failed, 0.
int ExitCode(const Session& session);

}  // namespace weightless::loadtest
