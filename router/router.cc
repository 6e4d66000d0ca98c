#include "router/router.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/concat.h"
#include "common/file_limit.h"
#include "common/grpc_log.h"
#include "common/grpc_tls.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status.h"
#include "router/auth.h"
#include "router/delayed_worker_client.h"
#include "router/engine_loop.h"
#include "router/grpc_worker_client.h"
#include "router/http_server.h"
#include "router/routes.h"
#include "router/tls.h"
#include "router/worker_discovery.h"

namespace weightless::router {
namespace {

// For the last bytes of answers that are complete when the drain ends.
constexpr absl::Duration kFlushTime = absl::Seconds(2);
constexpr int kMaxMetricsConnections = 64;

// The workers as given: addresses, and names under which there are any number.
struct Workers {
  std::vector<WorkerEndpoint> endpoints;
  std::vector<DnsName> names;
};

absl::StatusOr<Workers> FindWorkers(const RouterConfig& config, const WorkerClientFactory& make) {
  Workers workers;
  for (const std::string& given : config.workers) {
    ASSIGN_OR_RETURN(std::optional<DnsName> name, ParseDnsName(given));
    if (name.has_value()) {
      workers.names.push_back(*std::move(name));
    } else {
      workers.endpoints.push_back({given, make(given)});
    }
  }
  return workers;
}

// Tells this router from others in a worker's messages.
std::string OwnerName() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

EngineConfig MakeEngineConfig(const RouterConfig& config) {
  EngineConfig engine;
  engine.plan_ahead = config.plan_ahead;
  engine.max_chunk_tokens = config.max_chunk_tokens;
  engine.max_queued = config.max_queued;
  engine.step_timeout = config.step_timeout;
  engine.worker_wait_timeout = config.worker_wait_timeout;
  engine.owner = OwnerName();
  return engine;
}

// Fewer connections than were asked for, with a warning, when the limit of open files is too low.
HttpOptions FitToFiles(HttpOptions options, int64_t file_limit) {
  constexpr int64_t kOtherFiles = 320;  // workers, the metrics listener, logs
  const int64_t room = std::max(file_limit - kOtherFiles, file_limit / 2);
  if (file_limit <= 0 || options.max_connections <= room) return options;
  LogWarning(
      "fewer_connections",
      {{"max_connections", options.max_connections}, {"file_limit", file_limit}, {"used", room}});
  options.max_connections = static_cast<int>(room);
  return options;
}

HttpOptions MetricsOptions(HttpOptions options) {
  options.num_threads = 1;
  options.max_connections = std::min(options.max_connections, kMaxMetricsConnections);
  return options;
}

void LogConfig(const RouterConfig& config, int64_t file_limit) {
  LogInfo("starting", {{"workers", absl::StrJoin(config.workers, ",")},
                       {"host", config.host},
                       {"port", config.port},
                       {"http_threads", config.http.num_threads},
                       {"max_connections", config.http.max_connections},
                       {"file_limit", file_limit},
                       {"tls", config.tls_cert_file.empty() ? "off" : "on"},
                       {"grpc_tls", config.grpc_tls.cert.empty() ? "off" : "on"},
                       {"keys", config.api_key_file.empty() ? "none" : "required"},
                       {"max_requests_per_key", config.max_requests_per_key},
                       {"max_requests_per_minute_per_key", config.max_requests_per_minute_per_key},
                       {"max_tokens_per_minute_per_key", config.max_tokens_per_minute_per_key},
                       {"plan_ahead", config.plan_ahead},
                       {"max_queued", config.max_queued}});
}

// An open door is somebody's wish at best.
void WarnIfOpen(const RouterConfig& config) {
  if (IsLoopback(config.host)) return;
  const auto warn = [&](std::string_view reason) {
    LogWarning("http_open", {{"host", config.host}, {"reason", reason}});
  };
  if (config.api_key_file.empty()) {
    warn("whoever reaches this port can use it; see --api-key-file");
  } else if (config.tls_cert_file.empty()) {
    warn("API keys pass in the clear; see --tls-cert-file");
  }
}

std::string Address(const std::string& host, int port) {
  return Concat(Bracketed(host), ":", port);
}

// What is read from files that may change while the router runs.
struct Credentials {
  std::unique_ptr<TlsContext> tls;    // null: in the clear
  std::unique_ptr<GrpcTls> grpc_tls;  // likewise, to the workers
  ApiKeys keys;
};

absl::StatusOr<Credentials> LoadCredentials(const RouterConfig& config, const Clock& clock) {
  Credentials credentials;
  if (!config.tls_cert_file.empty()) {
    ASSIGN_OR_RETURN(credentials.tls,
                     TlsContext::Load(config.tls_cert_file, config.tls_key_file, clock.Now()));
  }
  ASSIGN_OR_RETURN(credentials.grpc_tls, GrpcTls::Load(config.grpc_tls));
  if (!config.api_key_file.empty()) {
    ASSIGN_OR_RETURN(credentials.keys, ApiKeys::Load(config.api_key_file));
  }
  return credentials;
}

// Under which name each discovered worker was found: its certificate must have it. Thread-safe.
class WorkerNames {
 public:
  void Set(const std::vector<FoundWorker>& found) {
    absl::MutexLock lock(&mutex_);
    names_.clear();
    for (const FoundWorker& worker : found) names_[worker.address] = worker.name;
  }
  // Empty for a worker that was given by its address.
  std::string Get(const std::string& address) const {
    absl::MutexLock lock(&mutex_);
    const auto found = names_.find(address);
    return found != names_.end() ? found->second : "";
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> names_ ABSL_GUARDED_BY(mutex_);  // by address
};

void LogReload(std::string_view what, const absl::Status& status) {
  if (status.ok()) return LogInfo("reloaded", {{"what", what}});
  LogError("reload_failed", {{"what", what}, {"reason", std::string(status.message())}});
}

// Each of them is replaced by a sound new one, or stays.
void Reload(const RouterConfig& config, absl::Time now, const Credentials& credentials,
            Routes& routes) {
  if (credentials.tls != nullptr) LogReload("certificate", credentials.tls->Reload(now));
  if (credentials.grpc_tls != nullptr) credentials.grpc_tls->Reload();
  if (config.api_key_file.empty()) return;
  absl::StatusOr<ApiKeys> keys = ApiKeys::Load(config.api_key_file);
  LogReload("api_keys", keys.status());
  if (keys.ok()) routes.SetKeys(*std::move(keys));
}

}  // namespace

absl::Status RunRouter(const RouterConfig& config, const std::function<Wish()>& next_wish) {
  RETURN_IF_ERROR(Validate(config));
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, level)) SetLogLevel(level);
  const RealClock clock;
  ASSIGN_OR_RETURN(Credentials credentials, LoadCredentials(config, clock));
  const int64_t file_limit = RaiseFileLimit();
  LogConfig(config, file_limit);
  WarnIfOpen(config);

  // Later ones use earlier ones, and go first.
  RouterMetrics metrics(
      {.vllm_names = config.vllm_metrics, .served_model_name = config.served_model_name});
  RouteGrpcLog();
  WorkerNames names;
  const WorkerClientFactory make_client =
      [delay = config.stream_delay, &names,
       tls = credentials.grpc_tls.get()](const std::string& address) {
        std::unique_ptr<WorkerClient> client =
            tls != nullptr ? MakeTlsWorkerClient(address, *tls, names.Get(address))
                           : MakeGrpcWorkerClient(address);
        if (delay == absl::ZeroDuration()) return client;
        return MakeDelayedWorkerClient(std::move(client), delay);
      };
  ASSIGN_OR_RETURN(Workers workers, FindWorkers(config, make_client));
  EngineLoop engine(MakeEngineConfig(config), std::move(workers.endpoints), metrics, clock,
                    make_client);
  const WorkerDiscovery discovery(std::move(workers.names),
                                  [&engine, &names](const std::vector<FoundWorker>& found) {
                                    names.Set(found);
                                    std::vector<std::string> addresses;
                                    for (const FoundWorker& worker : found)
                                      addresses.push_back(worker.address);
                                    engine.SetDiscovered(std::move(addresses));
                                  });
  Routes routes(config, std::move(credentials.keys), engine, clock, metrics);
  const HttpOptions http = FitToFiles(config.http, file_limit);
  HttpServer server(http, routes, clock, metrics, credentials.tls.get());
  RETURN_IF_ERROR(server.Listen(config.host, config.port));
  MetricsRoutes metrics_routes(metrics);
  HttpServer metrics_server(MetricsOptions(http), metrics_routes, clock, metrics);
  if (config.metrics_port >= 0) {
    RETURN_IF_ERROR(metrics_server.Listen(config.host, config.metrics_port));
    LogInfo("metrics_listening", {{"address", Address(config.host, metrics_server.port())}});
  }
  LogInfo("listening", {{"address", Address(config.host, server.port())}});

  while (next_wish() == Wish::kReload) {
    Reload(config, clock.Now(), credentials, routes);
  }
  const absl::Time deadline = clock.Now() + config.drain_timeout;
  LogInfo("draining", {{"timeout_s", absl::ToDoubleSeconds(config.drain_timeout)}});
  routes.BeginDrain();
  server.BeginDrain();
  engine.Drain(deadline);
  const bool all_sent = server.WaitUntilIdle(std::max(deadline, clock.Now() + kFlushTime));
  LogInfo("drained", {{"all_sent", all_sent ? "yes" : "no"}});
  return absl::OkStatus();
}

}  // namespace weightless::router
