#include <pthread.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/grpc_tls.h"
#include "router/config.h"
#include "router/router.h"

namespace weightless::router {
namespace {

void AddSeconds(CLI::App& app, const std::string& flag, absl::Duration& target,
                const std::string& text) {
  app.add_option_function<double>(
         flag, [&target](double seconds) { target = absl::Seconds(seconds); },
         absl::StrCat(text, " (seconds)"))
      ->default_str(absl::StrCat(absl::ToDoubleSeconds(target)));
}

void AddFlags(RouterConfig& c, CLI::App& app) {
  HttpOptions& http = c.http;
  app.add_option("--worker,--workers", c.workers,
                 "Workers: host:port, or dns:name:port for each address of the name; several")
      ->delimiter(',');
  app.add_option("--host", c.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", c.port, "Port; 0 takes a free one")->capture_default_str();
  app.add_option("--metrics-port", c.metrics_port, "Also serve /metrics here, without keys");
  app.add_option("--vllm-metrics", c.vllm_metrics, "on: metrics also under vLLM's names; off")
      ->default_str("on");
  RefuseEmpty(*app.add_option("--tls-cert-file", c.tls_cert_file, "PEM certificate and its chain"));
  RefuseEmpty(*app.add_option("--tls-key-file", c.tls_key_file, "PEM private key of it"));
  AddGrpcTlsFlags(app, c.grpc_tls);
  RefuseEmpty(*app.add_option("--api-key-file", c.api_key_file,
                              "Keys: name:key, name:sha256:HEX or key, one a line"));
  app.add_option("--max-requests-per-key", c.max_requests_per_key, "Under way at once; 0: any");
  app.add_option("--max-requests-per-minute-per-key", c.max_requests_per_minute_per_key, "0: any");
  app.add_option("--max-tokens-per-minute-per-key", c.max_tokens_per_minute_per_key,
                 "Of prompts and answers; 0: any");
  app.add_option("--served-model-name", c.served_model_name, "What clients call the model");
  app.add_flag("!--no-generation-config", c.use_generation_config,
               "Ignore the model's generation_config.json");
  app.add_option("--plan-ahead", c.plan_ahead, "Plans in flight per worker")->capture_default_str();
  app.add_option("--max-chunk-tokens", c.max_chunk_tokens,
                 "Prompt tokens in a step, of all sequences; 0: room");
  app.add_option("--max-queued", c.max_queued, "Choices waiting")->capture_default_str();
  AddSeconds(app, "--step-timeout", c.step_timeout, "A worker silent for so long is lost");
  app.add_option_function<double>(
      "--stream-delay-ms", [&c](double ms) { c.stream_delay = absl::Milliseconds(ms); },
      "Delay added to each message of a worker, to measure plan-ahead");
  AddSeconds(app, "--request-timeout", c.request_timeout, "Longest request; 0: none");
  AddSeconds(app, "--worker-wait-timeout", c.worker_wait_timeout,
             "What is accepted waits so long while no worker is ready; 503 beyond");
  AddSeconds(app, "--drain-timeout", c.drain_timeout, "For running requests after SIGTERM");
  app.add_option("--http-threads", http.num_threads, "HTTP threads")->capture_default_str();
  app.add_option("--max-connections", http.max_connections, "At once")->capture_default_str();
  app.add_option("--max-body-bytes", http.max_body_bytes, "413 beyond")->capture_default_str();
  app.add_option("--max-header-bytes", http.max_header_bytes, "431 beyond")->capture_default_str();
  app.add_option("--max-header-fields", http.max_header_fields, "431 beyond")
      ->capture_default_str();
  AddSeconds(app, "--header-timeout", http.header_timeout, "To read a header; 408 beyond");
  AddSeconds(app, "--body-timeout", http.body_timeout, "To read a body; 408 beyond");
  AddSeconds(app, "--idle-timeout", http.idle_timeout, "Between requests of a connection");
  AddSeconds(app, "--write-timeout", http.write_timeout, "A client that does not read is cut off");
  AddSeconds(app, "--keep-alive-interval", http.keep_alive_interval, "Silence in a stream");
  app.add_option("--log-level", c.log_level, "debug, info, warning, error")->capture_default_str();
}

}  // namespace
}  // namespace weightless::router

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread, for all of them
  signal(SIGPIPE, SIG_IGN);
  CLI::App app("OpenAI-style HTTP front door and scheduler of the workers.", "weightless-router");
  weightless::router::RouterConfig config;
  weightless::router::AddFlags(config, app);
  if (const auto code = weightless::ParseFlags(app, argc, argv)) return *code;
  const absl::Status status = weightless::router::RunRouter(config, [&signals] {
    int number = 0;
    sigwait(&signals, &number);
    if (number == SIGHUP) return weightless::router::Wish::kReload;
    signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second one ends it at once
    return weightless::router::Wish::kStop;
  });
  if (status.ok()) return 0;
  std::fprintf(stderr, "weightless-router: %s\n", std::string(status.message()).c_str());
  return 2;
}
