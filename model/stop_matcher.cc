#include "model/stop_matcher.h"

#include <utility>

#include "common/check.h"

namespace weightless::model {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  for (const std::string& stop : stops_) CHECK(!stop.empty());
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  return Resolve(false);
}

std::string StopMatcher::Finish() {
  if (stopped()) return {};
  return Resolve(true);
}

// Walks the start positions from the left. A position where no stop string matches, wholly or so
// far, is decided for good; the first one that is still open ends the walk.
std::string StopMatcher::Resolve(bool finished) {
  const std::string_view held = held_;
  size_t start = 0;
  for (; start < held.size(); ++start) {
    const std::string_view rest = held.substr(start);
    const std::string* longest = nullptr;
    bool may_grow = false;
    for (const std::string& stop : stops_) {
      if (rest.starts_with(stop)) {
        if (longest == nullptr || stop.size() > longest->size()) longest = &stop;
      } else if (!finished && stop.starts_with(rest)) {
        may_grow = true;
      }
    }
    if (may_grow) break;
    if (longest != nullptr) {
      matched_ = *longest;
      std::string text = held_.substr(0, start + (include_stop_ ? longest->size() : 0));
      held_.clear();
      return text;
    }
  }
  std::string text = held_.substr(0, start);
  held_.erase(0, start);
  return text;
}

}  // namespace weightless::model
