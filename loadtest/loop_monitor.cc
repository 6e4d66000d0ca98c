#include "loadtest/loop_monitor.h"

#include <time.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "loadtest/steady_time.h"

namespace weightless::loadtest {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

class LoopMonitor::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(boost::asio::io_context& io) : timer_(io) {}

  void Start() {
    load_ = {};
    started_ = SteadyClock::now();
    cpu_at_start_ = ThreadCpuSeconds();
    is_running_ = true;
    Wait();
  }

  GeneratorLoad Stop() {
    is_running_ = false;
    timer_.cancel();
    load_.cpu_seconds = ThreadCpuSeconds() - cpu_at_start_;
    load_.wall_seconds = Seconds(SteadyClock::now() - started_);
    return std::exchange(load_, {});
  }

 private:
  // Also for the ticks that were due meanwhile: a stall is as long for each of them as for what
  // arrives at its time.
  void Note(SteadyClock::duration lag) {
    do {
      load_.lags.push_back(Seconds(lag));
      lag -= kTick;
    } while (lag > lag.zero());
  }

  void Wait() {
    timer_.expires_after(kTick);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code ec) {
      if (ec || !self->is_running_) return;
      self->Note(SteadyClock::now() - self->timer_.expiry());
      self->Wait();
    });
  }

  boost::asio::steady_timer timer_;
  GeneratorLoad load_;
  SteadyTime started_;
  double cpu_at_start_ = 0;
  bool is_running_ = false;
};

LoopMonitor::LoopMonitor(boost::asio::io_context& io) : impl_(std::make_shared<Impl>(io)) {}
LoopMonitor::~LoopMonitor() = default;
void LoopMonitor::Start() { impl_->Start(); }
GeneratorLoad LoopMonitor::Stop() { return impl_->Stop(); }

}  // namespace weightless::loadtest
