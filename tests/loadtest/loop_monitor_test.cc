#include "loadtest/loop_monitor.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <vector>

#include "loadtest/stats.h"

namespace weightless::loadtest {
namespace {

// A loop that stands still for 100 ms in each second is late for a tenth of what comes, not for one
// event in a second.
TEST(LoopMonitorTest, StallCountsForEachTickThatItSwallows) {
  boost::asio::io_context io;
  LoopMonitor monitor(io);
  std::vector<boost::asio::steady_timer> stalls;
  for (int i = 0; i < 3; ++i) {
    stalls.emplace_back(io, std::chrono::milliseconds(500 + 1000 * i));
    stalls.back().async_wait([](boost::system::error_code) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
  }
  GeneratorLoad load;
  boost::asio::steady_timer end(io, std::chrono::seconds(3));
  end.async_wait([&](boost::system::error_code) { load = monitor.Stop(); });
  monitor.Start();
  io.run();
  const Distribution lags = Describe(load.lags);
  EXPECT_GT(lags.count, 300u);
  EXPECT_GT(lags.p99, 0.01);
  EXPECT_GT(lags.max, 0.09);
}

}  // namespace
}  // namespace weightless::loadtest
