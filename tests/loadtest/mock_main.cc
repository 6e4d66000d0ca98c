// loadtest-mock: the mock server as a program, to hold any load generator against known timings.
//   loadtest-mock TTFT_MS ITL_MS
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/loadtest/mock_server.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: loadtest-mock TTFT_MS ITL_MS\n");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the server's thread starts
  const weightless::loadtest::MockServer server(
      {.ttft_seconds = std::atof(argv[1]) / 1e3, .itl_seconds = std::atof(argv[2]) / 1e3});
  std::printf("%s\n", server.url().ToString().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
}
