// Two servers side by side, from one run that asked both for the same prompts in turn.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "loadtest/record.h"
#include "loadtest/stats.h"

namespace weightless::loadtest {

struct ComparisonRow {
  const char* name;
  const char* unit;
  double scale = 1;  // of a and b, from seconds or plain numbers to the unit
  double a = 0;
  double b = 0;
  Ratio ratio;  // b / a
};

struct Comparison {
  size_t num_pairs = 0;  // prompts that both completed
  std::vector<ComparisonRow> rows{};
};

// Pairs records by their index; target 0 is A, target 1 is B.
Comparison Compare(const std::deque<Record>& records, uint64_t seed);

}  // namespace weightless::loadtest
