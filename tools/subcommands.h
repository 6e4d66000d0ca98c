// The subcommands of `weightless`, one file each. argv[0] is the subcommand's name; the result is
// the program's exit code: 0, 1 when something failed, 2 when it was called wrongly.
#pragma once

namespace weightless::tools {

int Serve(int argc, const char* const* argv);
int Generate(int argc, const char* const* argv);
int Bench(int argc, const char* const* argv);
int RunProbe(int argc, const char* const* argv);

}  // namespace weightless::tools
