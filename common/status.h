// Early return for absl::Status and absl::StatusOr.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                                  \
  do {                                                         \
    absl::Status status_macro_result = (expr);                 \
    if (!status_macro_result.ok()) return status_macro_result; \
  } while (false)

#define WEIGHTLESS_CONCAT_INNER(a, b) a##b
#define WEIGHTLESS_CONCAT(a, b) WEIGHTLESS_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(auto x, F()): binds the value of a StatusOr or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(WEIGHTLESS_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(var, lhs, expr)    \
  auto var = (expr);                             \
  if (!var.ok()) return std::move(var).status(); \
  lhs = std::move(var).value()
