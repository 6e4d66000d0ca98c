// What a person sees while models load: a bar on a terminal, log lines elsewhere.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace weightless::tools {

// The fraction of a worker's log line `... event=load_progress fraction=0.25`; nothing for any
// other line.
std::optional<double> ParseLoadProgress(std::string_view line);

// "Loading tiny-gemma3 [#########...........] 45 %", `fraction` in [0, 1].
std::string FormatBar(std::string_view label, double fraction);

// Draws one bar for several workers on standard error. Owned by one thread.
class LoadDisplay {
 public:
  // num_workers: how many will report. Draws nothing unless standard error is a terminal.
  LoadDisplay(std::string label, int num_workers);

  void Update(const std::string& worker, double fraction);
  // Removes the bar, so that other text can be printed; the next Update draws it again.
  void Clear();

 private:
  const std::string label_;
  const int num_workers_;
  const bool enabled_;
  std::map<std::string, double> fractions_;
  bool drawn_ = false;
};

}  // namespace weightless::tools
