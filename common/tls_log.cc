#include "common/tls_log.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"

namespace weightless {
namespace {

constexpr int kMaxTlsLines = 20;
constexpr absl::Duration kTlsLogWindow = absl::Seconds(10);

class LineLimit {
 public:
  // Nothing: leave this line out. Else how many were left out before it.
  std::optional<int> Take() {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    if (now - window_start_ >= kTlsLogWindow) {
      window_start_ = now;
      num_lines_ = 0;
    }
    if (num_lines_ >= kMaxTlsLines) {
      ++num_left_out_;
      return std::nullopt;
    }
    ++num_lines_;
    return std::exchange(num_left_out_, 0);
  }

 private:
  absl::Mutex mutex_;
  absl::Time window_start_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int num_lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void LogTlsFailure(std::string_view peer, std::string_view reason) {
  static LineLimit limit;
  const std::optional<int> left_out = limit.Take();
  if (!left_out.has_value()) return;
  if (*left_out > 0) LogWarning("tls_lines_left_out", {{"lines", *left_out}});
  if (peer.empty()) return LogWarning("tls_handshake_failed", {{"reason", reason}});
  LogWarning("tls_handshake_failed", {{"peer", peer}, {"reason", reason}});
}

}  // namespace weightless
