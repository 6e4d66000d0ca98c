// The user's wish to end: SIGINT or SIGTERM.
#pragma once

namespace weightless::loadtest {

// From now on the first signal is a wish that IsInterrupted tells; another one half a second later
// ends the process with 130 at once. (timeout(1) sends its signal twice.) An earlier wish is
// forgotten. Stays in force until the process ends, so that no signal costs a report.
void CatchInterrupts();

// Thread-safe.
bool IsInterrupted();

}  // namespace weightless::loadtest
