// What `weightless bench` measured, as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weightless::tools {

struct BenchRow {
  std::string phase;  // "prefill", "decode"
  int batch = 0;      // sequences
  int context = 0;    // tokens of each before the step (decode); of the prompt (prefill)
  double step_s = 0;  // median: of one decode step, or of the whole prompt
  double tokens_per_s = 0;
  // Decode: bytes of weights and of K and V that a step must read. 0 for prefill.
  int64_t step_bytes = 0;
  double read_rate = 0;  // bytes/s that memory gave between the timed steps; 0 for prefill
};

struct BenchReport {
  std::string model;
  std::string numerics;
  std::string device;
  int threads = 0;
  int repeats = 0;
  std::vector<BenchRow> rows;
};

std::string FormatTable(const BenchReport& report);
std::string FormatJson(const BenchReport& report);

}  // namespace weightless::tools
