// Random numbers for names and seeds; nothing secret depends on them. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace weightless::router {

// 32 hex digits.
std::string RandomHexId();

// In [0, 2^53): a number that JSON readers keep exact.
int64_t RandomSeed();

}  // namespace weightless::router
