// CHECK(cond): an invariant of our own code. Prints one line to stderr and aborts when it does not
// hold. Never reachable from outside input; that is absl::Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(cond)                                                                   \
  do {                                                                                \
    if (!(cond)) [[unlikely]] {                                                       \
      std::fprintf(stderr, "CHECK failed at %s:%d: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                   \
    }                                                                                 \
  } while (false)
