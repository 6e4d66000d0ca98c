// The line that shows a run while it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loadtest/runner.h"

namespace weightless::loadtest {

// On a terminal one line that is redrawn; otherwise a line every few seconds. Writes to stderr.
class Progress {
 public:
  // `mode`: auto (on when stderr is a terminal), on, off.
  Progress(const std::string& mode, std::optional<uint64_t> num_requests,
           std::optional<double> duration_seconds);

  void Show(const LiveStats& stats);
  // Ends the line.
  void Finish();
  // A line of its own, for what takes long after the run.
  void Say(const std::string& text) const;

  // The text for `stats`, given what was shown before: rates are those since then.
  std::string Line(const LiveStats& stats);

 private:
  double Share(const LiveStats& stats) const;

  bool is_on_ = false;
  bool is_terminal_ = false;
  bool has_line_ = false;
  const std::optional<uint64_t> num_requests_;
  const std::optional<double> duration_seconds_;
  double last_shown_ = 0;
  double last_seconds_ = 0;
  uint64_t last_ended_ = 0;
  uint64_t last_tokens_ = 0;
  double requests_per_second_ = 0;  // smoothed
  double tokens_per_second_ = 0;
  double ttft_ = 0;  // median of the last requests
};

}  // namespace weightless::loadtest
