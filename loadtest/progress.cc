#include "loadtest/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "common/concat.h"
#include "loadtest/stats.h"

namespace weightless::loadtest {
namespace {

constexpr size_t kBarWidth = 24;
constexpr double kPlainInterval = 5;  // seconds between lines when there is no terminal
constexpr double kSmoothing = 1;      // seconds

}  // namespace

Progress::Progress(const std::string& mode, std::optional<uint64_t> num_requests,
                   std::optional<double> duration_seconds)
    : is_terminal_(isatty(STDERR_FILENO) == 1),
      num_requests_(num_requests),
      duration_seconds_(duration_seconds) {
  is_on_ = mode == "on" || (mode == "auto" && is_terminal_);
}

double Progress::Share(const LiveStats& stats) const {
  double share = 0;
  if (num_requests_) {
    share = static_cast<double>(stats.num_ended) / static_cast<double>(*num_requests_);
  }
  if (duration_seconds_) share = std::max(share, stats.elapsed_seconds / *duration_seconds_);
  return std::clamp(share, 0.0, 1.0);
}

std::string Progress::Line(const LiveStats& stats) {
  const double span = stats.elapsed_seconds - last_seconds_;
  if (span > 0) {
    const double weight = last_seconds_ == 0 ? 1 : 1 - std::exp(-span / kSmoothing);
    const auto smooth = [&](double& rate, uint64_t now, uint64_t before) {
      rate += weight * (static_cast<double>(now - before) / span - rate);
    };
    smooth(requests_per_second_, stats.num_ended, last_ended_);
    smooth(tokens_per_second_, stats.num_tokens, last_tokens_);
  }
  if (!stats.recent_ttfts.empty()) ttft_ = Describe(stats.recent_ttfts).p50;
  last_seconds_ = stats.elapsed_seconds;
  last_ended_ = stats.num_ended;
  last_tokens_ = stats.num_tokens;
  const auto filled = static_cast<size_t>(Share(stats) * double{kBarWidth});
  const std::string total = num_requests_ ? absl::StrFormat("/%d", *num_requests_) : "";
  std::string line = absl::StrFormat(
      "[%s%s] %d%s  %.1f req/s  %.0f tok/s  TTFT %.1f ms  %d running", std::string(filled, '='),
      std::string(kBarWidth - filled, ' '), stats.num_ended, total, requests_per_second_,
      tokens_per_second_, ttft_ * 1e3, stats.num_running);
  if (stats.num_failed > 0) line += absl::StrFormat("  %d FAILED", stats.num_failed);
  return line;
}

void Progress::Show(const LiveStats& stats) {
  if (!is_on_) return;
  if (is_terminal_) {
    std::fprintf(stderr, "\r%s\033[K", Line(stats).c_str());
    has_line_ = true;
  } else if (stats.elapsed_seconds - last_shown_ >= kPlainInterval) {
    last_shown_ = stats.elapsed_seconds;
    std::fprintf(stderr, "%s\n", Line(stats).c_str());
  }
}

void Progress::Say(const std::string& text) const {
  if (is_on_) std::fprintf(stderr, "%s\n", text.c_str());
}

void Progress::Finish() {
  if (has_line_) std::fputc('\n', stderr);
  has_line_ = false;
}

}  // namespace weightless::loadtest
