#include "router/router.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/concat.h"
#include "common/grpc_log.h"
#include "common/grpc_tls.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status.h"
#include "router/auth.h"
#include "router/delayed_worker_client.h"
#include "router/engine_loop.h"
#include "router/grpc_worker_client.h"
#include "router/http_server.h"
#include "router/routes.h"
#include "router/worker_discovery.h"

namespace weightless::router {
namespace {

// For the last bytes of answers that are complete when the drain ends.
constexpr absl::Duration kFlushTime = absl::Seconds(2);

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

EngineConfig MakeEngineConfig(const RouterConfig& config) {
  EngineConfig engine;
  engine.plan_ahead = config.plan_ahead;
  engine.max_chunk_tokens = config.max_chunk_tokens;
  engine.max_queued = config.max_queued;
  engine.step_timeout = config.step_timeout;
  return engine;
}

void LogConfig(const RouterConfig& config, int64_t file_limit) {
  LogInfo("starting", {{"workers", absl::StrJoin(config.workers, ",")},
                       {"host", config.host},
                       {"port", config.port},
                       {"http_threads", config.http.num_threads},
                       {"max_connections", config.http.max_connections},
                       {"file_limit", file_limit},
                       {"grpc_tls", config.grpc_tls.cert.empty() ? "off" : "on"},
                       {"keys", config.api_key_file.empty() ? "none" : "required"},
                       {"max_requests_per_key", config.max_requests_per_key},
                       {"plan_ahead", config.plan_ahead},
                       {"max_queued", config.max_queued}});
}

std::string Address(const std::string& host, int port) { return Concat(host, ":", port); }

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

}  // namespace

absl::Status RunRouter(const RouterConfig& config, const std::function<void()>& wait_for_stop) {
  RETURN_IF_ERROR(Validate(config));
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, level)) SetLogLevel(level);
  ApiKeys keys;
  if (!config.api_key_file.empty()) {
    ASSIGN_OR_RETURN(keys, ApiKeys::Load(config.api_key_file));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<GrpcTls> grpc_tls, GrpcTls::Load(config.grpc_tls));
  LogConfig(config, RaiseFileLimit());

  // Later ones use earlier ones, and go first.
  const RealClock clock;
  RouterMetrics metrics(
      {.vllm_names = config.vllm_metrics, .served_model_name = config.served_model_name});
  RouteGrpcLog();
  WorkerNames names;
  const WorkerClientFactory make_client = [delay = config.stream_delay, &names,
                                           tls = grpc_tls.get()](const std::string& address) {
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
  Routes routes(config, std::move(keys), engine, clock, metrics);
  HttpServer server(config.http, routes, clock, metrics);
  RETURN_IF_ERROR(server.Listen(config.host, config.port));
  MetricsRoutes metrics_routes(metrics);
  HttpOptions metrics_options = config.http;
  metrics_options.num_threads = 1;
  HttpServer metrics_server(metrics_options, metrics_routes, clock, metrics);
  if (config.metrics_port >= 0) {
    RETURN_IF_ERROR(metrics_server.Listen(config.host, config.metrics_port));
    LogInfo("metrics_listening", {{"address", Address(config.host, metrics_server.port())}});
  }
  LogInfo("listening", {{"address", Address(config.host, server.port())}});

  wait_for_stop();
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
