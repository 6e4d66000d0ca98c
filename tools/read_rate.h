// How fast this machine reads memory: what bounds a decode step.
#pragma once

namespace weightless::tools {

// Bytes per second that `num_threads` threads read together from a buffer far larger than any
// cache: the best of a few passes. Takes about a second. Throws std::bad_alloc without 1 GiB.
double MeasureReadRate(int num_threads);

}  // namespace weightless::tools
