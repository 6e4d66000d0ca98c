// The command line of loadtest.
#pragma once

#include <optional>

#include "loadtest/config.h"

namespace weightless::loadtest {

// Fills `config` and validates it. Nothing: go on. Otherwise the exit code: 0 after --help or
// --version, 2 after an error, which has been printed to stderr.
std::optional<int> ReadFlags(int argc, const char* const* argv, Config& config);

}  // namespace weightless::loadtest
