#include "worker/load_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "common/log.h"

namespace weightless::worker {
namespace {

constexpr int kBarWidth = 40;

void DrawBar(int percent) {
  const int filled = percent * kBarWidth / 100;
  const std::string bar(static_cast<size_t>(filled), '#');
  std::fprintf(stderr, "\rloading [%-*s] %3d %%%s", kBarWidth, bar.c_str(), percent,
               percent == 100 ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace

LoadProgress ShowLoadProgress() {
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const int granularity = is_terminal ? 1 : 25;
  return [is_terminal, granularity, shown = -1](double fraction) mutable {
    const int percent = std::clamp(static_cast<int>(fraction * 100), 0, 100);
    const int rounded = percent - percent % granularity;
    if (rounded <= shown) return;
    shown = rounded;
    if (is_terminal) {
      DrawBar(rounded);
    } else {
      LogInfo("load_progress", {{"fraction", rounded / 100.0}});
    }
  };
}

}  // namespace weightless::worker
