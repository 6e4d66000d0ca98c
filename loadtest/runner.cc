#include "loadtest/runner.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "common/check.h"
#include "loadtest/interrupt.h"
#include "loadtest/stream_reader.h"

namespace weightless::loadtest {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr auto kInterruptInterval = std::chrono::milliseconds(20);

// One use of Runner::Run: everything happens on the thread that runs `io`.
class Execution {
 public:
  Execution(asio::io_context& io, std::vector<std::unique_ptr<HttpClient>>& targets,
            const RunPlan& plan)
      : io_(io),
        targets_(targets),
        plan_(plan),
        monitor_(io),
        arrival_timer_(io),
        deadline_timer_(io),
        interrupt_timer_(io),
        progress_timer_(io) {}

  RunResult Run() {
    io_.restart();
    result_.started = SteadyClock::now();
    monitor_.Start();
    if (plan_.duration_seconds) StopSendingAfter(*plan_.duration_seconds);
    if (plan_.stops_on_interrupt) AwaitInterrupt();
    if (plan_.on_progress) ReportProgress();
    if (plan_.next_arrival) {
      AwaitArrival();
    } else {
      StartStreams();
    }
    FinishIfIdle();
    io_.run();
    return std::move(result_);
  }

 private:
  // --- closed loop

  void StartStreams() {
    readers_.resize(static_cast<size_t>(plan_.max_in_flight));
    ramp_timers_.reserve(readers_.size());
    for (int slot = 0; slot < plan_.max_in_flight; ++slot) {
      const double delay = plan_.ramp_up_seconds * slot / plan_.max_in_flight;
      if (delay <= 0) {
        SendNext(slot);
        continue;
      }
      ramp_timers_.emplace_back(io_, result_.started + FromSeconds(delay));
      ++num_ramping_;
      ramp_timers_.back().async_wait([this, slot](error_code) {
        --num_ramping_;
        SendNext(slot);
      });
    }
  }

  void SendNext(int slot) {
    const std::optional<PlannedRequest> request =
        is_sending_ ? plan_.next_request(slot) : std::nullopt;
    if (request) {
      return Send(*request, static_cast<size_t>(slot), SteadyClock::now());
    }
    CancelRamp();  // nothing is left for those streams, either
    FinishIfIdle();
  }

  void CancelRamp() {
    for (asio::steady_timer& timer : ramp_timers_) timer.cancel();
  }

  // --- open loop

  void DrawArrival() {
    const std::optional<double> offset = plan_.next_arrival();
    has_arrivals_ = offset.has_value();
    if (offset) next_arrival_ = result_.started + FromSeconds(*offset);
  }

  void AwaitArrival() {
    DrawArrival();
    if (!has_arrivals_) return FinishIfIdle();
    arrival_timer_.expires_at(next_arrival_);
    arrival_timer_.async_wait([this](error_code ec) {
      if (ec || !is_sending_) return;
      waiting_.push_back(next_arrival_);
      SendWaiting(false);
      if (is_sending_) AwaitArrival();
    });
  }

  // What is due by now and will not be sent, also what the event loop has not come to.
  void KeepUnsent() {
    for (const SteadyTime now = SteadyClock::now(); has_arrivals_ && next_arrival_ <= now;) {
      waiting_.push_back(next_arrival_);
      DrawArrival();
    }
    result_.unsent = std::exchange(waiting_, {});
    has_arrivals_ = false;
  }

  // Sends what is due as far as slots allow. What had to wait for a slot says nothing about the
  // generator's punctuality.
  void SendWaiting(bool waited_for_slot) {
    while (!waiting_.empty() && HasRoom()) {
      const SteadyTime intended = waiting_.front();
      const std::optional<PlannedRequest> request = plan_.next_request(0);
      if (!request) return StopSending();
      waiting_.pop_front();
      if (!waited_for_slot && waiting_.empty()) {
        send_delays_.push_back(Seconds(SteadyClock::now() - intended));
      }
      Send(*request, FreeSlot(), intended);
    }
  }

  bool HasRoom() const {
    return plan_.max_in_flight == 0 || num_running_ < static_cast<size_t>(plan_.max_in_flight);
  }

  size_t FreeSlot() {
    if (free_slots_.empty()) {
      readers_.emplace_back();
      return readers_.size() - 1;
    }
    const size_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  // --- both

  void Send(const PlannedRequest& planned, size_t slot, SteadyTime intended) {
    Record& record = result_.records.emplace_back();
    record.index = planned.prompt_idx;
    record.target = planned.target;
    record.intended = intended;
    std::string request = plan_.format_request(planned, record);
    record.content.reserve(std::min<size_t>(record.max_tokens, 4096));
    readers_[slot] = std::make_unique<StreamReader>(
        record, num_tokens_, [this, slot](StreamReader& reader) { OnEnd(slot, reader.record()); });
    if (plan_.keeps_text) readers_[slot]->KeepText();
    ++num_running_;
    targets_[planned.target]->Start(std::move(request), *readers_[slot], plan_.timeout);
  }

  void OnEnd(size_t slot, const Record& record) {
    --num_running_;
    ++num_ended_;
    if (record.outcome == Outcome::kFailed) ++num_failed_;
    if (!record.content.empty()) {
      recent_ttfts_.push_back(Seconds(record.content.front().when - record.sent));
    }
    if (plan_.next_arrival) {
      readers_[slot].reset();
      free_slots_.push_back(slot);
      SendWaiting(true);
      FinishIfIdle();
    } else {
      SendNext(static_cast<int>(slot));
    }
  }

  void StopSendingAfter(double seconds) {
    deadline_timer_.expires_at(result_.started + FromSeconds(seconds));
    deadline_timer_.async_wait([this](error_code ec) {
      if (!ec) StopSending();
    });
  }

  void StopSending() {
    if (std::exchange(is_sending_, false)) KeepUnsent();
    arrival_timer_.cancel();
    CancelRamp();
    FinishIfIdle();
  }

  void AwaitInterrupt() {
    interrupt_timer_.expires_after(kInterruptInterval);
    interrupt_timer_.async_wait([this](error_code ec) {
      if (ec || is_finished_) return;
      if (!IsInterrupted()) return AwaitInterrupt();
      StopSending();
      for (const auto& target : targets_) target->CancelAll();
    });
  }

  void ReportProgress() {
    progress_timer_.expires_after(kProgressInterval);
    progress_timer_.async_wait([this](error_code ec) {
      if (ec || is_finished_) return;
      TellProgress();
      ReportProgress();
    });
  }

  void TellProgress() {
    plan_.on_progress({.elapsed_seconds = Seconds(SteadyClock::now() - result_.started),
                       .num_ended = num_ended_,
                       .num_failed = num_failed_,
                       .num_running = num_running_,
                       .num_tokens = num_tokens_,
                       .recent_ttfts = std::exchange(recent_ttfts_, {})});
  }

  // Ends the run when nothing is running and nothing will come. A handler that was already queued
  // is not cancelled and sees is_finished_.
  void FinishIfIdle() {
    if (num_running_ > 0 || num_ramping_ > 0 || has_arrivals_ || !waiting_.empty()) return;
    if (std::exchange(is_finished_, true)) return;
    result_.ended = SteadyClock::now();
    result_.load = monitor_.Stop();
    result_.load.send_delays = std::move(send_delays_);
    if (plan_.on_progress) TellProgress();
    arrival_timer_.cancel();
    deadline_timer_.cancel();
    interrupt_timer_.cancel();
    progress_timer_.cancel();
  }

  asio::io_context& io_;
  std::vector<std::unique_ptr<HttpClient>>& targets_;
  const RunPlan& plan_;
  RunResult result_;
  LoopMonitor monitor_;
  asio::steady_timer arrival_timer_;
  asio::steady_timer deadline_timer_;
  asio::steady_timer interrupt_timer_;
  asio::steady_timer progress_timer_;
  std::vector<asio::steady_timer> ramp_timers_;
  std::vector<std::unique_ptr<StreamReader>> readers_;  // by slot
  std::vector<size_t> free_slots_;                      // open loop
  SteadyTime next_arrival_;                             // open loop, while has_arrivals_
  std::deque<SteadyTime> waiting_;                      // due, but no slot is free
  std::vector<double> send_delays_;
  std::vector<double> recent_ttfts_;
  uint64_t num_tokens_ = 0;
  uint64_t num_ended_ = 0;
  uint64_t num_failed_ = 0;
  size_t num_running_ = 0;
  int num_ramping_ = 0;
  bool is_sending_ = true;
  bool has_arrivals_ = false;
  bool is_finished_ = false;
};

}  // namespace

struct Runner::State {
  asio::io_context io{1};
  std::vector<std::unique_ptr<HttpClient>> targets;
};

Runner::Runner() : state_(std::make_unique<State>()) {}
Runner::~Runner() = default;

absl::Status Runner::AddTarget(const Url& url, const TlsOptions& tls) {
  state_->targets.push_back(std::make_unique<HttpClient>(state_->io, url, tls));
  return state_->targets.back()->Open();
}

RunResult Runner::Run(const RunPlan& plan) {
  CHECK(!state_->targets.empty());
  return Execution(state_->io, state_->targets, plan).Run();
}

}  // namespace weightless::loadtest
