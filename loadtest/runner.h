// One run: sends requests by a plan and keeps a record of each.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "loadtest/http_client.h"
#include "loadtest/loop_monitor.h"
#include "loadtest/record.h"

namespace weightless::loadtest {

// What the progress bar shows.
struct LiveStats {
  double elapsed_seconds = 0;
  uint64_t num_ended = 0;
  uint64_t num_failed = 0;
  size_t num_running = 0;
  uint64_t num_tokens = 0;           // chunks with content
  std::vector<double> recent_ttfts;  // of what ended since the last call
};

struct PlannedRequest {
  uint64_t prompt_idx = 0;
  size_t target = 0;  // in the order of AddTarget
};

struct RunPlan {
  // Closed loop: streams that run at all times. Open loop: the most that may run; 0: no limit.
  int max_in_flight = 1;
  double ramp_up_seconds = 0;              // closed loop: starts the streams spread over this time
  std::optional<double> duration_seconds;  // nothing is sent after it
  absl::Duration timeout = absl::Minutes(10);
  bool stops_on_interrupt = false;  // ends with what there is, once IsInterrupted
  bool keeps_text = false;          // in the records

  // Offsets of an open loop, in seconds; unset: closed loop.
  std::function<std::optional<double>()> next_arrival;
  // What stream `slot` sends next; nothing when all is sent. Open loop: slot is 0.
  std::function<std::optional<PlannedRequest>(int slot)> next_request;
  // The request's bytes; fills the planned fields of the record.
  std::function<std::string(const PlannedRequest&, Record&)> format_request;
  std::function<void(const LiveStats&)> on_progress;  // five times a second; may be empty
};

struct RunResult {
  std::deque<Record> records;     // in the order of sending
  std::deque<SteadyTime> unsent;  // open loop: intended times that had come when the sending ended
  SteadyTime started;
  SteadyTime ended;
  GeneratorLoad load;
};

// Runs the plan against the targets and returns when every request has ended.
class Runner {
 public:
  Runner();
  ~Runner();

  // Adds a target and resolves its name.
  absl::Status AddTarget(const Url& url, const TlsOptions& tls);

  RunResult Run(const RunPlan& plan);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weightless::loadtest
