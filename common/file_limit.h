// How many files and sockets this process may have open.
#pragma once

#include <cstdint>

namespace weightless {

// Raises the soft limit of open files to the hard one; returns the limit now in force. Negative:
// there is none, or it is not known.
int64_t RaiseFileLimit();

}  // namespace weightless
