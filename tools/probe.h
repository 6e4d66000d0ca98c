// Asking a process of ours, from outside, whether it answers and whether it is ready.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/grpc_tls.h"

namespace weightless::tools {

enum class ProbeResult { kSilent, kNotReady, kReady };

// Blocks for at most a second or so, for each address of the host. Thread-safe.
using Probe = std::function<ProbeResult()>;

// grpc.health.v1 Check at "host:port". With `tls`, which outlives the probe, the certificate there
// must name `server_name`, or without one the host of `address`.
Probe GrpcHealthProbe(const std::string& address, GrpcTls* tls = nullptr,
                      const std::string& server_name = {});
// GET /ready at host:port; 200 is ready, any other answer is not ready.
Probe HttpReadyProbe(const std::string& host, int port);
// Likewise over TLS. Any certificate is good: nothing secret is sent, and only whether an answer
// comes is asked. A connection that is closed without an answer is not ready: that is how a router
// at its limit of connections refuses one under TLS, and a process that hangs closes none.
Probe HttpsReadyProbe(const std::string& host, int port);

// Probes again and again on a thread of its own: once every `interval`, four times as often until
// ready. Thread-safe.
class Watch {
 public:
  explicit Watch(Probe probe, absl::Duration interval = absl::Seconds(1));
  ~Watch();

  struct State {
    bool was_ready = false;  // since the start of the watch
    // From the start of the first of the latest probes in a row without an answer to the end of the
    // last; zero after an answer.
    absl::Duration silence;
  };
  State state() const;

 private:
  void Run();

  const Probe probe_;
  const absl::Duration interval_;
  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weightless::tools
