#include "router/worker_discovery.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "common/concat.h"
#include "common/host_port.h"
#include "common/log.h"

namespace weightless::router {
namespace {

constexpr std::string_view kPrefix = "dns:";

}  // namespace

absl::StatusOr<std::optional<DnsName>> ParseDnsName(std::string_view worker) {
  if (!worker.starts_with(kPrefix)) return std::optional<DnsName>();
  const std::optional<HostPort> parsed = ParseHostPort(worker.substr(kPrefix.size()));
  if (parsed.has_value() && parsed->port >= 1) {
    return DnsName{.host = parsed->host, .port = parsed->port};
  }
  return absl::InvalidArgumentError(Concat("--worker ", Quoted(worker), " is not dns:HOST:PORT"));
}

absl::StatusOr<std::vector<std::string>> LookUp(const DnsName& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name.host.c_str(), nullptr, &hints, &found);
  if (code == EAI_NONAME || code == EAI_NODATA) return std::vector<std::string>();
  if (code != 0) {
    return absl::UnavailableError(Concat("cannot look up ", name.host, ": ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::vector<std::string> result;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> host{};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    result.push_back(Concat(Bracketed(host.data()), ":", name.port));
  }
  return result;
}

WorkerDiscovery::WorkerDiscovery(std::vector<DnsName> names, Report report, Resolver resolver,
                                 absl::Duration interval)
    : report_(std::move(report)), resolver_(std::move(resolver)), interval_(interval) {
  for (DnsName& name : names)
    names_.push_back({.name = std::move(name), .addresses = {}, .last_problem = {}});
  if (names_.empty()) return;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "discovery");
    Run();
  });
}

WorkerDiscovery::~WorkerDiscovery() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void WorkerDiscovery::Run() {
  std::vector<FoundWorker> reported;
  for (;;) {
    std::map<std::string, std::string> names;  // by address
    for (Known& known : names_) {
      Refresh(known);
      for (const std::string& address : known.addresses) names.emplace(address, known.name.host);
    }
    std::vector<FoundWorker> found;
    for (auto& [address, name] : names) found.push_back({.address = address, .name = name});
    if (found != reported) {
      report_(found);
      reported = std::move(found);
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), interval_)) return;
  }
}

void WorkerDiscovery::Refresh(Known& known) {
  absl::StatusOr<std::vector<std::string>> found = resolver_(known.name);
  std::string problem;
  if (!found.ok()) {
    problem = std::string(found.status().message());
  } else {
    known.addresses = *std::move(found);
    if (known.addresses.empty()) problem = "it has no address";
  }
  if (!problem.empty() && problem != known.last_problem) {
    LogWarning("workers_not_found", {{"name", known.name.host}, {"reason", problem}});
  }
  known.last_problem = std::move(problem);
}

}  // namespace weightless::router
