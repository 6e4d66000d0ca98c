#include "common/flags.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <set>

#include "absl/strings/ascii.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless {
namespace {

constexpr std::string_view kConfigFlag = "config";
constexpr char kNotEmpty[] = "NOT EMPTY";  // in the help, the mark of RefuseEmpty

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// The values of all "--flag=value" and "--flag value"; empty for a flag without one.
std::vector<std::string> ArgumentValues(const std::vector<std::string>& arguments,
                                        std::string_view flag) {
  const std::string name = Concat("--", flag);
  const std::string assignment = Concat(name, "=");
  std::vector<std::string> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") break;
    if (arguments[i] == name) values.push_back(i + 1 < arguments.size() ? arguments[i + 1] : "");
    if (arguments[i].starts_with(assignment)) {
      values.push_back(arguments[i].substr(assignment.size()));
    }
  }
  return values;
}

// The last of them.
std::optional<std::string> FindArgument(const std::vector<std::string>& arguments,
                                        std::string_view flag) {
  std::vector<std::string> values = ArgumentValues(arguments, flag);
  if (values.empty()) return std::nullopt;
  return std::move(values.back());
}

// A flag that takes one value, twice on the command line: one of them would be dropped.
absl::Status CheckNotTwice(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() != 1) continue;
    for (const std::string& flag : option->get_lnames()) {
      const std::vector<std::string> values = ArgumentValues(arguments, flag);
      if (values.size() < 2) continue;
      return absl::InvalidArgumentError(Concat("--", flag, " is there twice, with ",
                                               Quoted(values[0]), " and ", Quoted(values[1])));
    }
  }
  return absl::OkStatus();
}

// Whether one of the names of `option`, long or short, is among the arguments.
bool IsSet(const CLI::Option& option, const std::vector<std::string>& arguments) {
  for (const std::string& name : option.get_lnames()) {
    if (FindArgument(arguments, name)) return true;
  }
  for (const std::string& name : option.get_snames()) {
    const std::string prefix = Concat("-", name);
    if (std::any_of(arguments.begin(), arguments.end(),
                    [&](const std::string& argument) { return argument.starts_with(prefix); })) {
      return true;
    }
  }
  return false;
}

bool RefusesEmpty(const CLI::Option& option) {
  return option.get_type_name().find(kNotEmpty) != std::string::npos;
}

absl::Status CheckNotEmpty(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (!RefusesEmpty(*option)) continue;
    for (const std::string& flag : option->get_lnames()) {
      if (FindArgument(arguments, flag) != "") continue;
      return absl::InvalidArgumentError(Concat("--", flag, " (", EnvironmentName(flag),
                                               ") is empty: give a value or leave it out"));
    }
  }
  return absl::OkStatus();
}

const CLI::Option* FindOption(const CLI::App& app, const std::string& flag) {
  for (const CLI::Option* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (std::find(names.begin(), names.end(), flag) != names.end()) return option;
  }
  return nullptr;
}

absl::Status AppendValue(const std::string& flag, const YAML::Node& value,
                         const CLI::Option& option, std::vector<std::string>& out) {
  if (value.IsScalar()) {
    out.push_back(Concat("--", flag, "=", value.Scalar()));
    return absl::OkStatus();
  }
  if (!value.IsSequence()) return absl::InvalidArgumentError("is neither a value nor a list");
  if (option.get_items_expected_max() <= 1) return absl::InvalidArgumentError("takes one value");
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) return absl::InvalidArgumentError("holds an item that is not a value");
    out.push_back(Concat("--", flag, "=", item.Scalar()));
  }
  return absl::OkStatus();
}

// Arguments for every key of the file whose flag is not in `taken`.
absl::StatusOr<std::vector<std::string>> FileArguments(const CLI::App& app, const std::string& path,
                                                       const std::set<const CLI::Option*>& taken) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    return absl::NotFoundError(Concat("cannot read the configuration file ", path));
  } catch (const std::exception& error) {  // also std::ios_base::failure, of a folder
    return absl::InvalidArgumentError(Concat(path, ": ", error.what()));
  }
  if (root.IsNull()) return std::vector<std::string>{};
  if (!root.IsMap()) return absl::InvalidArgumentError(Concat(path, ": not a map of flags"));
  std::vector<std::string> out;
  std::set<const CLI::Option*> seen;
  for (const auto& entry : root) {
    const std::string flag = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const CLI::Option* option = FindOption(app, flag);
    const std::string where = Concat(path, ":", entry.first.Mark().line + 1, ": key '", flag, "' ");
    if (option == nullptr || flag == kConfigFlag || option == app.get_help_ptr()) {
      return absl::InvalidArgumentError(Concat(where, "is not a flag of ", app.get_name()));
    }
    if (!seen.insert(option).second)
      return absl::InvalidArgumentError(Concat(where, "is there twice"));
    if (taken.count(option) != 0) continue;
    const absl::Status status = AppendValue(flag, entry.second, *option, out);
    if (!status.ok())
      return absl::InvalidArgumentError(Concat(where, std::string(status.message())));
  }
  return out;
}

}  // namespace

std::string EnvironmentName(std::string_view flag) {
  std::string name = Concat("WEIGHTLESS_", flag);
  std::replace(name.begin(), name.end(), '-', '_');
  absl::AsciiStrToUpper(&name);
  return name;
}

void RefuseEmpty(CLI::Option& option) {
  option.check(CLI::Validator([](const std::string&) { return std::string(); }, kNotEmpty));
}

absl::StatusOr<std::vector<std::string>> LayeredArguments(const CLI::App& app,
                                                          const std::vector<std::string>& arguments,
                                                          const Environment& environment) {
  RETURN_IF_ERROR(CheckNotTwice(app, arguments));
  std::vector<std::string> from_environment;
  std::set<const CLI::Option*> taken;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option == app.get_help_ptr()) continue;
    if (IsSet(*option, arguments)) {
      taken.insert(option);
      continue;
    }
    const std::string& flag = option->get_lnames().front();
    const auto value = environment(EnvironmentName(flag));
    if (!value || (value->empty() && !RefusesEmpty(*option))) continue;
    from_environment.push_back(Concat("--", flag, "=", *value));
    taken.insert(option);
  }
  std::optional<std::string> config = FindArgument(arguments, kConfigFlag);
  if (!config) config = FindArgument(from_environment, kConfigFlag);
  std::vector<std::string> out;
  if (config) {
    ASSIGN_OR_RETURN(out, FileArguments(app, *config, taken));
  }
  out.insert(out.end(), from_environment.begin(), from_environment.end());
  out.insert(out.end(), arguments.begin(), arguments.end());
  RETURN_IF_ERROR(CheckNotEmpty(app, out));
  return out;
}

std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  constexpr int kUsageError = 2;
  std::string config;
  app.add_option("--config", config, "YAML file of flags; WEIGHTLESS_* and flags go before it");
  app.set_version_flag("--version", WEIGHTLESS_VERSION);
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  auto arguments = LayeredArguments(app, given, ProcessEnvironment);
  if (!arguments.ok()) {
    std::cerr << app.get_name() << ": " << std::string(arguments.status().message()) << "\n";
    return kUsageError;
  }
  std::reverse(arguments->begin(), arguments->end());  // as CLI11 takes them
  try {
    app.parse(*std::move(arguments));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::cerr << app.get_name() << ": " << error.what() << " (see " << app.get_name()
              << " --help)\n";
    return kUsageError;
  }
  return std::nullopt;
}

}  // namespace weightless
