// Can the numbers of a run be trusted? Each check says what it looked at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loadtest/config.h"
#include "loadtest/runner.h"
#include "loadtest/server_metrics.h"
#include "loadtest/summary.h"

namespace weightless::loadtest {

enum class Verdict { kPassed, kFailed, kSkipped };

struct AuditCheck {
  const char* name;
  Verdict verdict = Verdict::kPassed;
  std::string detail{};  // what disagreed, with the first example; or what was compared; or why not
};

struct AuditInput {
  const RunResult& result;
  size_t target = 0;
  const Summary& summary;
  AuditLimits limits;
  bool is_open_loop = false;
  std::optional<ServerCounts> server;  // over the run; nothing: no metrics
  bool had_server = false;             // metrics before the run
  std::string no_server_reason;
};

// The checks, in this order:
//   generator      its event loop was late (p99), used up its core, an open loop sent later than
//                  intended though a slot was free, or a connection found no file or port here
//   streams        a completed stream lacks [DONE] or its one finish reason, or goes on after it;
//                  a failed one ended in order with neither
//   usage          the usage is missing here and there; counts fewer tokens than chunks with
//                  content, or other than the token ids; exceeds max_tokens; or is not max_tokens
//                  although the reason is "length". A duplicated chunk shows as more chunks than
//                  tokens.
//   server counts  requests, prompt and output tokens differ from /metrics by more than the
//                  tolerance; requests that failed or were cancelled may or may not be in it. Also,
//                  like the next: the metrics were there before the run only
//   server TTFT    more requests were slow for the client (by the tolerance) than for the server:
//                  time that the server's own TTFT does not see
std::vector<AuditCheck> Audit(const AuditInput& input);

bool HasFailure(const std::vector<AuditCheck>& checks);

}  // namespace weightless::loadtest
