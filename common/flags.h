// Where the settings of a program come from: its command line, else the environment, else a YAML
// file, else the default of the flag.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weightless {

// The environment's name of a flag: "max-length" is WEIGHTLESS_MAX_LENGTH.
std::string EnvironmentName(std::string_view flag);

// From now on an empty value of the option is an error, wherever it comes from: for settings
// without which more is open than was meant, or less.
void RefuseEmpty(CLI::Option& option);

// The value of an environment variable; nothing when it is unset.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// `arguments` (those of main without the program's name) preceded by a "--flag=value" for every
// flag of `app` that they do not set and the environment or the file does. An empty environment
// variable counts as unset, but for RefuseEmpty. The file is a YAML map from flag names without the
// dashes to values, named by --config or WEIGHTLESS_CONFIG; a list sets a flag that takes several
// values. kNotFound: no such file; kInvalidArgument: names the file and the key that is unknown,
// twice there or of the wrong kind, or the flag that must not be empty or is there twice.
absl::StatusOr<std::vector<std::string>> LayeredArguments(const CLI::App& app,
                                                          const std::vector<std::string>& arguments,
                                                          const Environment& environment);

// Adds --config and --version to `app` and parses into the variables bound to its options, by the
// rule above. Nothing: go on. Otherwise the exit code: 0 after --help or --version, 2 after an
// error, which has been printed to stderr.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

}  // namespace weightless
