#include "loadtest/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "common/concat.h"
#include "common/flags.h"
#include "common/status.h"

namespace weightless::loadtest {
namespace {

constexpr int kUsageError = 2;

// What is read as text and needs a second look.
struct RawFlags {
  std::string url = "http://127.0.0.1:8000";
  std::vector<std::string> compare;
  std::string endpoint = "chat";
  std::string input_tokens = "128";
  std::string output_tokens = "128";
  std::string arrival = "poisson";
  std::string ramp;
  std::string dataset = "random";
  std::string sweep;
  std::vector<std::string> slo;
  std::string api_key_file;
  bool skips_audit = false;
};

absl::Status BadValue(std::string_view flag, std::string_view value, std::string_view expected) {
  return absl::InvalidArgumentError(Concat(flag, " ", Quoted(value), " is not ", expected));
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

template <typename Enum>
absl::StatusOr<Enum> OneOf(std::string_view flag, const std::string& value,
                           const std::map<std::string, Enum>& names) {
  const auto found = names.find(value);
  if (found != names.end()) return found->second;
  std::string expected = "one of";
  for (const auto& [name, unused] : names) expected += " " + name;
  return BadValue(flag, value, expected);
}

absl::StatusOr<LengthRange> ParseLengths(std::string_view flag, const std::string& text) {
  const std::vector<std::string> parts = Split(text, '-');
  LengthRange range;
  if (parts.size() > 2 || !ParseNumber(parts.front(), range.low) ||
      !ParseNumber(parts.back(), range.high)) {
    return BadValue(flag, text, "a number of tokens, N or LOW-HIGH");
  }
  return range;
}

absl::Status ParseSlo(const std::vector<std::string>& items, Slo& slo) {
  for (const std::string& item : items) {
    const std::vector<std::string> parts = Split(item, ':');
    double milliseconds = 0;
    if (parts.size() != 2 || !ParseNumber(parts[1], milliseconds) || !(milliseconds > 0)) {
      return BadValue("--slo", item, "NAME:MILLISECONDS, as in ttft:200");
    }
    std::optional<double>* limit = parts[0] == "ttft"                        ? &slo.ttft_seconds
                                   : parts[0] == "tpot"                      ? &slo.tpot_seconds
                                   : parts[0] == "e2e" || parts[0] == "e2el" ? &slo.e2e_seconds
                                                                             : nullptr;
    if (limit == nullptr) return BadValue("--slo", item, "about ttft, tpot or e2e");
    *limit = milliseconds / 1000;
  }
  return absl::OkStatus();
}

absl::Status ParseRamp(const std::string& text, ArrivalConfig& arrivals) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() != 3 || !ParseNumber(parts[1], arrivals.ramp_start_rate) ||
      !ParseNumber(parts[2], arrivals.ramp_end_rate)) {
    return BadValue("--ramp", text, "KIND:START:END with rates, as in linear:1:20");
  }
  ASSIGN_OR_RETURN(
      arrivals.ramp,
      (OneOf<RampKind>("--ramp", parts[0],
                       {{"linear", RampKind::kLinear}, {"exponential", RampKind::kExponential}})));
  return absl::OkStatus();
}

absl::Status ParseSweep(const std::string& text, Config& config) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> sides = Split(text, '=');
  if (sides.size() != 2) return BadValue("--sweep", text, "concurrency=1,2,4 or rate=1,2,4");
  ASSIGN_OR_RETURN(
      config.sweep,
      (OneOf<SweepKind>("--sweep", sides[0],
                        {{"concurrency", SweepKind::kConcurrency}, {"rate", SweepKind::kRate}})));
  for (const std::string& item : Split(sides[1], ',')) {
    double point = 0;
    if (!ParseNumber(item, point)) return BadValue("--sweep", item, "a number");
    config.sweep_points.push_back(point);
  }
  return absl::OkStatus();
}

absl::Status ReadApiKey(const std::string& file, Config& config) {
  if (!file.empty()) {
    std::ifstream in(file);
    if (!std::getline(in, config.api_key)) {
      return absl::InvalidArgumentError(Concat("--api-key-file: cannot read a line of ", file));
    }
  }
  const char* key = std::getenv("OPENAI_API_KEY");
  if (config.api_key.empty() && key != nullptr) config.api_key = key;
  return absl::OkStatus();
}

absl::Status Interpret(const RawFlags& raw, Config& config) {
  if (!raw.compare.empty()) {
    ASSIGN_OR_RETURN(config.url, ParseUrl(raw.compare[0]));
    ASSIGN_OR_RETURN(config.compare_url, ParseUrl(raw.compare[1]));
  } else {
    ASSIGN_OR_RETURN(config.url, ParseUrl(raw.url));
  }
  ASSIGN_OR_RETURN(
      config.endpoint,
      (OneOf<Endpoint>("--endpoint", raw.endpoint,
                       {{"chat", Endpoint::kChat}, {"completions", Endpoint::kCompletions}})));
  ASSIGN_OR_RETURN(config.arrivals.kind, (OneOf<ArrivalKind>("--arrival", raw.arrival,
                                                             {{"poisson", ArrivalKind::kPoisson},
                                                              {"constant", ArrivalKind::kConstant},
                                                              {"gamma", ArrivalKind::kGamma}})));
  ASSIGN_OR_RETURN(config.dataset.kind,
                   (OneOf<DatasetKind>("--dataset", raw.dataset,
                                       {{"random", DatasetKind::kRandom},
                                        {"shared-prefix", DatasetKind::kSharedPrefix},
                                        {"jsonl", DatasetKind::kJsonl}})));
  ASSIGN_OR_RETURN(config.dataset.input_tokens, ParseLengths("--input-tokens", raw.input_tokens));
  ASSIGN_OR_RETURN(config.dataset.output_tokens,
                   ParseLengths("--output-tokens", raw.output_tokens));
  RETURN_IF_ERROR(ParseSlo(raw.slo, config.slo));
  RETURN_IF_ERROR(ParseRamp(raw.ramp, config.arrivals));
  RETURN_IF_ERROR(ParseSweep(raw.sweep, config));
  RETURN_IF_ERROR(ReadApiKey(raw.api_key_file, config));
  config.runs_audit = !raw.skips_audit;
  return config.Validate();
}

// A flag that would change nothing is an error, not silence.
absl::Status RefuseWithoutEffect(const CLI::App& app, const Config& config) {
  const DatasetKind dataset = config.dataset.kind;
  const bool has_trace = !config.arrivals.trace_file.empty();
  const bool is_open = config.arrivals.is_open_loop() || config.sweep == SweepKind::kRate;
  const bool is_tls = config.url.is_tls || (config.compare_url && config.compare_url->is_tls);
  struct Rule {
    const char* flag;
    bool has_effect;
    const char* when;
  };
  const Rule rules[] = {
      {"--concurrency", !is_open && config.sweep == SweepKind::kNone,
       "in a closed loop without --sweep (an open loop has --max-concurrency)"},
      {"--ramp-up", !is_open, "in a closed loop"},
      {"--max-concurrency", is_open, "in an open loop (a closed one has --concurrency)"},
      {"--arrival", is_open && !has_trace, "with --request-rate, --ramp or --sweep rate"},
      {"--burstiness", config.arrivals.kind == ArrivalKind::kGamma, "with --arrival gamma"},
      {"--trace-speed", has_trace, "with --trace"},
      {"--dataset", !has_trace, "without --trace"},
      {"--dataset-file", dataset == DatasetKind::kJsonl, "with --dataset jsonl"},
      {"--input-tokens", dataset != DatasetKind::kJsonl && !has_trace,
       "without --dataset jsonl and --trace"},
      {"--output-tokens", !has_trace, "without --trace"},
      {"--prefix-tokens", dataset == DatasetKind::kSharedPrefix, "with --dataset shared-prefix"},
      {"--num-prefixes", dataset == DatasetKind::kSharedPrefix, "with --dataset shared-prefix"},
      {"--url", !config.compare_url, "without --compare"},
      {"--tls-ca", is_tls, "with an https URL"},
      {"--tls-cert", is_tls, "with an https URL"},
      {"--tls-key", is_tls, "with an https URL"},
      {"--tls-insecure", is_tls, "with an https URL"},
      {"--audit-tolerance", config.runs_audit, "without --no-audit"},
      {"--audit-ttft-tolerance", config.runs_audit, "without --no-audit"},
  };
  if (config.compare_url && !config.metrics_url.empty() && config.metrics_url != "off") {
    return absl::InvalidArgumentError(
        "--metrics-url names one server, but --compare has two: each is asked at its own "
        "<url>/metrics, or with --metrics-url off none");
  }
  for (const Rule& rule : rules) {
    if (rule.has_effect || app.count(rule.flag) == 0) continue;
    return absl::InvalidArgumentError(Concat(rule.flag, " has an effect only ", rule.when));
  }
  return absl::OkStatus();
}

void AddTargetFlags(CLI::App& app, RawFlags& raw, Config& config) {
  const std::string group = "What is asked";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  add("--url", raw.url, "base URL of the server, with or without /v1")->capture_default_str();
  add("--compare", raw.compare,
      "two base URLs, A then B: interleaves them request by request and "
      "prints the ratios B/A")
      ->expected(2);
  add("--model", config.model, "model name; default: the first that /v1/models lists");
  add("--endpoint", raw.endpoint, "chat or completions")->capture_default_str();
  add("--api-key", config.api_key, "bearer key; better --api-key-file or OPENAI_API_KEY");
  add("--api-key-file", raw.api_key_file, "file whose first line is the bearer key");
  add("--extra-body", config.extra_body, "JSON object merged into every request");
  add("--temperature", config.temperature, "sampling temperature; default 0");
  app.add_flag("--ignore-eos", config.ignores_eos, "ask for all --output-tokens, whatever comes")
      ->group(group);
  app.add_flag("--return-token-ids", config.asks_token_ids,
               "ask for token ids in the stream, so that every token is counted")
      ->group(group);
  add("--tls-ca", config.tls.ca_file, "PEM file of trusted CAs; default: the system's");
  add("--tls-cert", config.tls.cert_file, "PEM file of the client's certificate");
  add("--tls-key", config.tls.key_file, "PEM file of the client's key");
  app.add_flag("--tls-insecure", config.tls.skips_verification, "accept any certificate")
      ->group(group);
  add("--timeout", config.timeout_seconds, "seconds for one request")->capture_default_str();
}

void AddLoadFlags(CLI::App& app, RawFlags& raw, Config& config) {
  const std::string group = "How much, and when";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  add("--concurrency", config.concurrency, "closed loop: streams that run at all times")
      ->capture_default_str();
  add("--ramp-up", config.ramp_up_seconds, "closed loop: seconds over which the streams start");
  add("--request-rate", config.arrivals.rate, "open loop: requests per second");
  add("--arrival", raw.arrival, "open loop: poisson, constant or gamma")->capture_default_str();
  add("--burstiness", config.arrivals.burstiness,
      "shape of --arrival gamma: 1 is Poisson, smaller is burstier")
      ->capture_default_str();
  add("--ramp", raw.ramp, "open loop with a growing rate: linear:START:END or exponential:...");
  add("--trace", config.arrivals.trace_file,
      "open loop from JSONL lines {timestamp (ms), input_length, output_length}");
  add("--trace-speed", config.arrivals.trace_speed, "replays a trace so many times faster")
      ->capture_default_str();
  add("--max-concurrency", config.max_concurrency, "open loop: requests beyond this wait; 0: none");
  add("--num-prompts", config.num_prompts,
      "requests; default 10 for each stream, at least 50, or what --duration allows");
  add("--duration", config.duration_seconds, "seconds after which nothing new is sent");
  add("--warmup", config.warmup,
      "requests before the measurement; -1: one for each stream (open loop: 1)")
      ->capture_default_str();
  add("--sweep", raw.sweep, "one run for each point: concurrency=1,2,4 or rate=1,2,4");
  add("--seed", config.seed, "same seed: same prompts, lengths and arrival times")
      ->capture_default_str();
}

void AddDatasetFlags(CLI::App& app, RawFlags& raw, Config& config) {
  const std::string group = "Prompts";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  add("--dataset", raw.dataset, "random, shared-prefix or jsonl")->capture_default_str();
  add("--dataset-file", config.dataset.file,
      "JSONL or a JSON array: ShareGPT conversations, or messages, or prompt");
  add("--input-tokens", raw.input_tokens, "N or LOW-HIGH, without the chat template's tokens")
      ->capture_default_str();
  add("--output-tokens", raw.output_tokens, "N or LOW-HIGH: max_tokens of each request")
      ->capture_default_str();
  add("--prefix-tokens", config.dataset.prefix_tokens, "shared-prefix: length of each prefix")
      ->capture_default_str();
  add("--num-prefixes", config.dataset.num_prefixes, "shared-prefix: how many there are")
      ->capture_default_str();
  add("--tokenizer", config.dataset.tokenizer,
      "who counts tokens: base URL of a server with /tokenize, or 'words' (one for each word)");
}

void AddReportFlags(CLI::App& app, RawFlags& raw, Config& config) {
  const std::string group = "Reports and audit";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(group);
  };
  add("--json", config.json_file, "write the results as JSON");
  add("--csv", config.csv_file, "write one line for each request");
  add("--html", config.html_file, "write a report with charts, one file");
  app.add_flag("--save-detailed", config.saves_detailed, "put every request into the JSON")
      ->group(group);
  add("--label", config.label, "name of this run in the reports");
  add("--slo", raw.slo, "limits in ms for goodput: ttft:200 tpot:50 e2e:3000");
  add("--progress", config.progress, "auto, on or off")->capture_default_str();
  add("--metrics-url", config.metrics_url,
      "the server's metrics; default <url>/metrics (with --compare always), off: none");
  add("--audit-tolerance", config.audit.count_tolerance,
      "relative difference allowed between client and server counts")
      ->capture_default_str();
  add("--audit-ttft-tolerance", config.audit.ttft_tolerance_seconds,
      "seconds (beside 20 %) by which the client's TTFT may exceed the server's")
      ->capture_default_str();
  app.add_flag("--no-audit", raw.skips_audit, "never exit with 3")->group(group);
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Config& config) {
  RawFlags raw;
  CLI::App app("Drives an OpenAI-compatible server and measures it.", "loadtest");
  app.footer(
      "Exit codes: 0 done, 1 nothing measured, 2 usage, 3 the audit found the numbers wrong, "
      "130 interrupted (the report covers what had ended).");
  AddTargetFlags(app, raw, config);
  AddLoadFlags(app, raw, config);
  AddDatasetFlags(app, raw, config);
  AddReportFlags(app, raw, config);
  if (const auto code = ParseFlags(app, argc, argv)) return code;
  config.dataset.output_is_given = app.count("--output-tokens") > 0;
  absl::Status status = Interpret(raw, config);
  if (status.ok()) status = RefuseWithoutEffect(app, config);
  if (status.ok()) return std::nullopt;
  std::fprintf(stderr, "loadtest: %s (see loadtest --help)\n",
               std::string(status.message()).c_str());
  return kUsageError;
}

}  // namespace weightless::loadtest
