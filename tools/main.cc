// weightless SUBCOMMAND [flags]
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tools/subcommands.h"

namespace {

struct Subcommand {
  const char* name;
  const char* summary;
  int (*run)(int argc, const char* const* argv);
};

constexpr std::array kSubcommands = {
    Subcommand{"serve", "start a router and workers on this machine and keep them running",
               weightless::tools::Serve},
    Subcommand{"generate", "complete one prompt, in this process", weightless::tools::Generate},
    Subcommand{"bench", "measure the engine alone: prefill and decode", weightless::tools::Bench},
    Subcommand{"probe", "ask a router or a worker whether it is ready",
               weightless::tools::RunProbe},
};

void PrintUsage(std::FILE* out) {
  std::fputs("usage: weightless SUBCOMMAND [flags]\n\n", out);
  for (const Subcommand& subcommand : kSubcommands) {
    std::fprintf(out, "  %-10s %s\n", subcommand.name, subcommand.summary);
  }
  std::fputs("\nweightless SUBCOMMAND --help lists the flags of one.\n", out);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Subcommand& subcommand : kSubcommands) {
    if (name == subcommand.name) return subcommand.run(argc - 1, argv + 1);
  }
  const bool is_help = name == "--help" || name == "-h" || name == "help";
  if (!is_help && !name.empty())
    std::fprintf(stderr, "weightless: no subcommand '%s'\n\n", argv[1]);
  PrintUsage(is_help ? stdout : stderr);
  return is_help ? 0 : 2;
}
