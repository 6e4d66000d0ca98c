// Finds stop strings in streamed text and holds back exactly what could still become one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightless::model {

// The earliest start in the text wins, then the longest. Since a longer match with the same start,
// or an earlier start, may still be under way when one is complete, the decision waits exactly as
// long as it can change; the outcome does not depend on how the text is cut into Push calls. Owned
// by one thread.
class StopMatcher {
 public:
  // Empty stop strings are not allowed (validated at the edge). No stop strings: everything passes
  // through.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // Text safe to send. After a match stopped() holds and later text is ignored.
  std::string Push(std::string_view text);
  // End of the sequence: resolves what is pending, returns what was held back.
  std::string Finish();
  bool stopped() const { return !matched_.empty(); }
  // The stop string that ended the text; empty if none.
  const std::string& matched() const { return matched_; }

 private:
  std::string Resolve(bool finished);

  const std::vector<std::string> stops_;
  const bool include_stop_;
  std::string held_;
  std::string matched_;
};

}  // namespace weightless::model
