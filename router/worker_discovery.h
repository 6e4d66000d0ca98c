// Finds workers by a DNS name: whoever has an address under it is one. The name is looked up again
// and again, so workers may come and go (compose --scale, a headless service of Kubernetes).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weightless::router {

struct DnsName {
  std::string host;
  int port = 0;
};

// "dns:HOST:PORT" as --worker takes it; nothing when it does not begin with "dns:".
// kInvalidArgument when the rest is not HOST:PORT.
absl::StatusOr<std::optional<DnsName>> ParseDnsName(std::string_view worker);

// Each address of the name as "ip:port" ("[ip]:port" for version 6), none when it has none.
// kUnavailable when nobody could tell. Blocks while the resolver does.
absl::StatusOr<std::vector<std::string>> LookUp(const DnsName& name);

// A worker under a name.
struct FoundWorker {
  std::string address;  // ip:port
  std::string name;     // host of the first name, by their order as given, that has the address

  bool operator==(const FoundWorker& other) const = default;
};

// Owns a thread that looks every name up once in an interval and reports the workers of all of
// them, sorted by address, when they differ from what it reported before. Of a name that nobody
// could tell about, the last known addresses count.
class WorkerDiscovery {
 public:
  using Resolver = std::function<absl::StatusOr<std::vector<std::string>>(const DnsName&)>;
  using Report = std::function<void(const std::vector<FoundWorker>& found)>;

  // `report` is called by the thread, until the destructor returns.
  WorkerDiscovery(std::vector<DnsName> names, Report report, Resolver resolver = LookUp,
                  absl::Duration interval = absl::Seconds(2));
  ~WorkerDiscovery();

 private:
  struct Known {
    DnsName name;
    std::vector<std::string> addresses;
    std::string last_problem;  // logged when it changes
  };

  void Run();
  void Refresh(Known& known);

  const Report report_;
  const Resolver resolver_;
  const absl::Duration interval_;
  std::vector<Known> names_;  // of the thread

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weightless::router
