// Whether the generator itself keeps up.
#pragma once

#include <memory>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace weightless::loadtest {

struct GeneratorLoad {
  double cpu_seconds = 0;           // of the thread that runs the event loop
  double wall_seconds = 0;          // from Start to Stop
  std::vector<double> lags;         // how late each tick of the event loop came, in seconds
  std::vector<double> send_delays;  // open loop: sent later than intended, not for want of a slot
  double cpu_share() const { return wall_seconds > 0 ? cpu_seconds / wall_seconds : 0; }
};

// Wants to be called every 5 ms by the event loop and notes how late it is: a chunk that arrives
// meanwhile is stamped as late as that. A stall counts for each 5 ms of it. Start and Stop on the
// loop's thread.
class LoopMonitor {
 public:
  explicit LoopMonitor(boost::asio::io_context& io);
  ~LoopMonitor();

  void Start();
  GeneratorLoad Stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // also held by the pending tick
};

}  // namespace weightless::loadtest
