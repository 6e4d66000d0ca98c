#include "tools/load_display.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "common/concat.h"

namespace weightless::tools {

std::optional<double> ParseLoadProgress(std::string_view line) {
  constexpr std::string_view kEvent = " event=load_progress ";
  constexpr std::string_view kField = " fraction=";
  if (line.find(kEvent) == std::string_view::npos) return std::nullopt;
  const size_t field = line.find(kField);
  if (field == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(field + kField.size());
  const std::string value(rest.substr(0, rest.find(' ')));
  double fraction = 0;
  if (!absl::SimpleAtod(value, &fraction) || !std::isfinite(fraction)) return std::nullopt;
  return std::clamp(fraction, 0.0, 1.0);
}

std::string FormatBar(std::string_view label, double fraction) {
  constexpr int kWidth = 30;
  const auto filled = static_cast<size_t>(std::lround(fraction * kWidth));
  return Concat("Loading ", label, " [", std::string(filled, '#'),
                std::string(kWidth - filled, '.'), "] ", std::lround(fraction * 100), " %");
}

LoadDisplay::LoadDisplay(std::string label, int num_workers)
    : label_(std::move(label)), num_workers_(num_workers), enabled_(isatty(STDERR_FILENO) == 1) {}

void LoadDisplay::Update(const std::string& worker, double fraction) {
  if (!enabled_) return;
  fractions_[worker] = fraction;
  double sum = 0;
  for (const auto& [name, part] : fractions_) sum += part;
  std::fprintf(stderr, "\r%s\x1b[K", FormatBar(label_, sum / num_workers_).c_str());
  drawn_ = true;
}

void LoadDisplay::Clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace weightless::tools
