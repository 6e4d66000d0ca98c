// weightless probe URL: the health check of a container or a script.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "common/flags.h"
#include "common/grpc_log.h"
#include "common/grpc_tls.h"
#include "common/host_port.h"
#include "tools/probe.h"
#include "tools/subcommands.h"

namespace weightless::tools {
namespace {

constexpr int kNotReady = 1;
constexpr int kUsageError = 2;

constexpr char kUrls[] = "http://HOST:PORT, https://HOST:PORT or grpc://HOST:PORT";

// Nothing when the URL is none of kUrls.
std::optional<Probe> MakeProbe(std::string_view url, GrpcTls* tls, const std::string& server_name) {
  const size_t end = url.find("://");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view scheme = url.substr(0, end);
  const std::string_view address = url.substr(end + 3);
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed.has_value() || parsed->port < 1) return std::nullopt;
  const std::string host = Unbracketed(parsed->host);
  if (scheme == "http") return HttpReadyProbe(host, parsed->port);
  if (scheme == "https") return HttpsReadyProbe(host, parsed->port);
  if (scheme == "grpc") return GrpcHealthProbe(std::string(address), tls, server_name);
  return std::nullopt;
}

const char* Name(ProbeResult result) {
  switch (result) {
    case ProbeResult::kReady:
      return "ready";
    case ProbeResult::kNotReady:
      return "not ready";
    case ProbeResult::kSilent:
      return "no answer";
  }
  return "unknown";
}

}  // namespace

int RunProbe(int argc, const char* const* argv) {
  CLI::App app("Ask a router or a worker whether it is ready: exit code 0 when it is, else 1.",
               "weightless probe");
  std::string url;
  app.add_option("url", url, "http(s)://HOST:PORT of a router, grpc://HOST:PORT of a worker")
      ->required();
  GrpcTlsFiles files;
  AddGrpcTlsFlags(app, files);
  std::string server_name;
  app.add_option("--grpc-tls-server-name", server_name,
                 "name in the worker's certificate; default: HOST");
  if (const auto code = ParseFlags(app, argc, argv)) return *code;
  RouteGrpcLog();
  const auto tls = GrpcTls::Load(files);
  if (!tls.ok()) {
    std::fprintf(stderr, "weightless probe: %s\n", std::string(tls.status().message()).c_str());
    return kUsageError;
  }
  const std::optional<Probe> probe = MakeProbe(url, tls->get(), server_name);
  if (!probe.has_value()) {
    std::fprintf(stderr, "weightless probe: '%s' is not one of %s\n", url.c_str(), kUrls);
    return kUsageError;
  }
  const ProbeResult result = (*probe)();
  std::printf("%s\n", Name(result));
  return result == ProbeResult::kReady ? 0 : kNotReady;
}

}  // namespace weightless::tools
