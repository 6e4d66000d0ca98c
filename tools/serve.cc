// weightless serve: a router and its workers on this machine.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/concat.h"
#include "common/flags.h"
#include "common/grpc_log.h"
#include "common/grpc_tls.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status.h"
#include "model/checkpoint.h"
#include "tools/addresses.h"
#include "tools/load_display.h"
#include "tools/paths.h"
#include "tools/ports.h"
#include "tools/subcommands.h"
#include "tools/supervisor.h"

namespace weightless::tools {
namespace {

constexpr int kUsageError = 2;
constexpr int kMaxPort = 65535;
// What a program may take to end beyond the time that running requests get.
constexpr absl::Duration kStopMargin = absl::Seconds(15);

// A flag that goes to the worker or the router as it is; they check its value.
struct PassedFlag {
  const char* name;
  const char* help;
};

constexpr PassedFlag kWorkerFlags[] = {
    {"device", "cpu, cuda or cuda:N"},
    {"dtype", "bfloat16 or float32"},
    {"max-length", "tokens per sequence, prompt and output; default: what the model allows"},
    {"kernels", "auto, reference, avx2, avx512bf16 or amx"},
    {"num-slots", "sequences that one worker runs at once"},
    {"max-step-tokens", "tokens that one step may compute"},
};
constexpr PassedFlag kRouterFlags[] = {
    {"tls-cert-file", "PEM certificate and its chain, for HTTPS"},
    {"tls-key-file", "PEM private key of the certificate"},
    {"api-key-file", "file of API keys, one a line; without it no key is asked for"},
    {"max-requests-per-key", "requests of one key under way at once"},
    {"max-requests-per-minute-per-key", "requests of one key per minute"},
    {"max-tokens-per-minute-per-key", "tokens of one key per minute, of prompts and answers"},
    {"served-model-name", "what clients call the model"},
    {"metrics-port", "also serve /metrics on this port, without keys"},
    {"vllm-metrics", "on: metrics also under vLLM's names; off"},
    {"plan-ahead", "steps in flight per worker"},
    {"max-chunk-tokens", "prompt tokens that one step may compute, of all sequences"},
    {"max-queued", "sequences that may wait"},
    {"request-timeout", "seconds a request may take"},
    {"worker-wait-timeout", "seconds that requests wait while no worker is ready"},
    {"http-threads", "threads that speak HTTP"},
};

struct ServeConfig {
  std::string model = kBuiltInModel;
  std::string model_dir;
  std::string host = "127.0.0.1";
  int port = 8000;
  int workers = 1;
  int worker_metrics_port = 0;  // of the first worker, the others follow; 0: none
  GrpcTlsFiles grpc_tls;        // of router and workers alike
  double memory_utilization = 0.3;
  double drain_timeout_s = 30;
  std::string log_level = "info";
  std::map<std::string, std::string> passed;  // values of passed flags that were given
};

void AddFlags(CLI::App& app, ServeConfig& config) {
  app.add_option(
         "--model", config.model,
         "checkpoint folder, .gguf or .safetensors file, or the name of a model in --model-dir")
      ->capture_default_str();
  app.add_option("--model-dir", config.model_dir, "folder where models are looked for by name");
  app.add_option("--workers", config.workers, "worker processes; they share the cores")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--host", config.host, "address to listen on")->capture_default_str();
  app.add_option("--port", config.port, "port to listen on; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option(
         "--device-memory-utilization", config.memory_utilization,
         "share of the memory left by the weights that the KV caches of all workers may use")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  app.add_option("--drain-timeout", config.drain_timeout_s,
                 "seconds that running requests get after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  app.add_option("--log-level", config.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_option("--worker-metrics-port", config.worker_metrics_port,
                 "loopback port of the first worker's /metrics; worker i has this port + i")
      ->check(CLI::Range(1, 65535));
  AddGrpcTlsFlags(app, config.grpc_tls);
  for (const PassedFlag& flag : kWorkerFlags) {
    app.add_option(Concat("--", flag.name), config.passed[flag.name], flag.help);
  }
  for (const PassedFlag& flag : kRouterFlags) {
    CLI::Option* option =
        app.add_option(Concat("--", flag.name), config.passed[flag.name], flag.help);
    if (absl::EndsWith(flag.name, "-file")) RefuseEmpty(*option);
  }
}

template <size_t N>
void AppendPassed(const PassedFlag (&flags)[N], const ServeConfig& config,
                  std::vector<std::string>& command) {
  for (const PassedFlag& flag : flags) {
    const std::string& value = config.passed.at(flag.name);
    if (!value.empty()) command.push_back(Concat("--", flag.name, "=", value));
  }
}

// What the programs log at: at least INFO, for the progress of a load is told there.
std::string ChildLogLevel(const ServeConfig& config) {
  return config.log_level == "debug" ? "debug" : "info";
}

// Whether a program's line, "TIME LEVEL event=...", is to be shown. Any other line is.
bool IsShown(const std::string& line, LogLevel shown) {
  const std::vector<std::string> words =
      absl::StrSplit(line.substr(0, 64), absl::MaxSplits(' ', 2));
  LogLevel level = LogLevel::kInfo;
  return words.size() < 3 || !ParseLogLevel(absl::AsciiStrToLower(words[1]), level) ||
         level >= shown;
}

void AppendTls(const GrpcTlsFiles& files, std::vector<std::string>& command) {
  if (files.cert.empty()) return;
  command.push_back(Concat("--grpc-tls-cert-file=", files.cert));
  command.push_back(Concat("--grpc-tls-key-file=", files.key));
  command.push_back(Concat("--grpc-tls-ca-file=", files.ca));
}

Program WorkerProgram(const ServeConfig& config, int worker_idx, int port, GrpcTls* tls) {
  const std::string address = Concat("127.0.0.1:", port);
  std::vector<std::string> command = {
      Concat(ProgramFolder(), "/weightless-worker"),
      Concat("--model=", config.model),
      Concat("--listen=", address),
      Concat("--workers-on-device=", config.workers),
      Concat("--device-memory-utilization=", config.memory_utilization),
      Concat("--log-level=", ChildLogLevel(config)),
  };
  if (config.worker_metrics_port != 0) {
    command.push_back(
        Concat("--metrics-listen=127.0.0.1:", config.worker_metrics_port + worker_idx));
  }
  AppendTls(config.grpc_tls, command);
  AppendPassed(kWorkerFlags, config, command);
  return {.name = Concat("worker-", worker_idx),
          .command = std::move(command),
          .make_probe = [address, tls] { return GrpcHealthProbe(address, tls); },
          .stop_stage = 1};
}

// Where the router answers a client of this machine.
std::string LocalHost(const std::string& host) {
  return host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host;
}

bool HasTls(const ServeConfig& config) { return !config.passed.at("tls-cert-file").empty(); }

Program RouterProgram(const ServeConfig& config, const std::vector<int>& worker_ports) {
  std::string workers;
  for (const int port : worker_ports)
    workers += Concat(workers.empty() ? "" : ",", "127.0.0.1:", port);
  std::vector<std::string> command = {
      Concat(ProgramFolder(), "/weightless-router"),
      Concat("--workers=", workers),
      Concat("--host=", config.host),
      Concat("--port=", config.port),
      Concat("--log-level=", ChildLogLevel(config)),
      Concat("--drain-timeout=", config.drain_timeout_s),
  };
  AppendTls(config.grpc_tls, command);
  AppendPassed(kRouterFlags, config, command);
  return {.name = "router",
          .command = std::move(command),
          .make_probe =
              [host = LocalHost(config.host), port = config.port, tls = HasTls(config)] {
                return tls ? HttpsReadyProbe(host, port) : HttpReadyProbe(host, port);
              },
          .stop_stage = 0};
}

bool IsChatModel(const model::Checkpoint& checkpoint) {
  for (const auto& [name, contents] : checkpoint.model_files()) {
    if (name == "chat_template.jinja") return true;
    if (contents.find("chat_template") != std::string::npos) return true;
  }
  return false;
}

void PrintReady(const ServeConfig& config, const model::Checkpoint& checkpoint) {
  const std::string url = Concat(HasTls(config) ? "https://" : "http://",
                                 Bracketed(LocalHost(config.host)), ":", config.port);
  const bool is_chat = IsChatModel(checkpoint);
  const std::string key = config.passed.at("api-key-file").empty()
                              ? ""
                              : " \\\n      -H 'Authorization: Bearer YOUR_KEY'";
  std::cout
      << "\nWeightless is ready.\n"
      << "  URL    " << url << "/v1\n"
      << "  Model  " << checkpoint.name() << " on " << config.workers
      << (config.workers == 1 ? " worker\n" : " workers\n") << "  Try    curl -N " << url
      << (is_chat ? "/v1/chat/completions" : "/v1/completions") << key
      << " \\\n      -H 'Content-Type: application/json' \\\n      -d '"
      << (is_chat
              ? R"({"stream": true, "messages": [{"role": "user", "content": "Define: ocean"}]})"
              : R"({"stream": true, "prompt": "The capital of France is"})")
      << "'\n  Stop   Ctrl-C\n"
      << std::endl;
}

absl::StatusOr<std::unique_ptr<model::Checkpoint>> Prepare(ServeConfig& config) {
  ASSIGN_OR_RETURN(config.model, FindModel(config.model, config.model_dir));
  ASSIGN_OR_RETURN(auto checkpoint, model::Checkpoint::Open(config.model));
  ASSIGN_OR_RETURN(config.port, ProbePort(config.host, config.port));
  if (config.worker_metrics_port + config.workers - 1 > kMaxPort) {
    return absl::InvalidArgumentError(Concat("--worker-metrics-port ", config.worker_metrics_port,
                                             " leaves no ports up to ", kMaxPort, " for ",
                                             config.workers, " workers"));
  }
  return checkpoint;
}

SupervisorOptions MakeOptions(const CLI::App& app, const ServeConfig& config, LogLevel level,
                              const model::Checkpoint& checkpoint, LoadDisplay& display) {
  SupervisorOptions options;
  options.stop_limit = absl::Seconds(config.drain_timeout_s) + kStopMargin;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      options.dropped_variables.push_back(EnvironmentName(name));
    }
  }
  options.on_ready = [&] {
    display.Clear();
    PrintReady(config, checkpoint);
  };
  options.on_line = [&display, level](const std::string& program, const std::string& line) {
    if (const auto fraction = ParseLoadProgress(line)) return display.Update(program, *fraction);
    if (!IsShown(line, level)) return;
    display.Clear();
    std::fprintf(stderr, "%s | %s\n", program.c_str(), line.c_str());
  };
  return options;
}

}  // namespace

int Serve(int argc, const char* const* argv) {
  ServeConfig config;
  CLI::App app("Starts a router and its workers on this machine and keeps them running.",
               "weightless serve");
  AddFlags(app, config);
  if (const auto code = ParseFlags(app, argc, argv)) return *code;
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, level)) SetLogLevel(level);

  const auto checkpoint = Prepare(config);
  const auto worker_ports = FreeLoopbackPorts(config.workers);
  RouteGrpcLog();
  const auto tls = GrpcTls::Load(config.grpc_tls);
  for (const absl::Status& status : {checkpoint.status(), worker_ports.status(), tls.status()}) {
    if (status.ok()) continue;
    std::cerr << "weightless serve: " << status.message() << "\n";
    return kUsageError;
  }

  LoadDisplay display((*checkpoint)->name(), config.workers);
  Supervisor supervisor(MakeOptions(app, config, level, **checkpoint, display));
  std::vector<Program> programs;
  for (int i = 0; i < config.workers; ++i) {
    programs.push_back(
        WorkerProgram(config, i, (*worker_ports)[static_cast<size_t>(i)], tls->get()));
  }
  programs.push_back(RouterProgram(config, *worker_ports));
  return supervisor.Run(std::move(programs));
}

}  // namespace weightless::tools
