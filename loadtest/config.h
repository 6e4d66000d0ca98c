// Everything the command line says, in one struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "loadtest/http_client.h"
#include "loadtest/url.h"

namespace weightless::loadtest {

enum class Endpoint { kChat, kCompletions };
enum class ArrivalKind { kPoisson, kConstant, kGamma };
enum class RampKind { kNone, kLinear, kExponential };
enum class DatasetKind { kRandom, kSharedPrefix, kJsonl };
enum class SweepKind { kNone, kConcurrency, kRate };

// A number of tokens: fixed when low == high, else uniform between them.
struct LengthRange {
  size_t low = 0;
  size_t high = 0;
};

struct Slo {
  std::optional<double> ttft_seconds;
  std::optional<double> tpot_seconds;
  std::optional<double> e2e_seconds;
  bool is_set() const { return ttft_seconds || tpot_seconds || e2e_seconds; }
};

// The arrival process. A rate makes the loop open: requests are sent when they are due, whatever
// the server does.
struct ArrivalConfig {
  std::optional<double> rate;  // requests per second
  ArrivalKind kind = ArrivalKind::kPoisson;
  double burstiness = 1;  // gamma's shape: 1 is Poisson, smaller is burstier
  RampKind ramp = RampKind::kNone;
  double ramp_start_rate = 0;
  double ramp_end_rate = 0;
  std::string trace_file;
  double trace_speed = 1;

  bool is_open_loop() const { return rate || ramp != RampKind::kNone || !trace_file.empty(); }
};

struct DatasetConfig {
  DatasetKind kind = DatasetKind::kRandom;
  std::string file;
  LengthRange input_tokens{128, 128};
  LengthRange output_tokens{128, 128};
  bool output_is_given = false;  // else a JSONL line may name its own length
  size_t prefix_tokens = 256;
  size_t num_prefixes = 4;
  std::string tokenizer;  // base URL of a server with /tokenize, "words", or empty: the target
};

struct AuditLimits {
  double count_tolerance = 0.001;        // of requests and tokens, relative
  double ttft_tolerance_seconds = 0.05;  // client against server, beside a fifth of the value
  double loop_lag_seconds = 0.01;        // p99 of the generator's event loop
  double cpu_share = 0.95;               // of the one core the generator uses
  double send_delay_seconds = 0.02;      // p99, open loop: sent later than intended
};

struct Config {
  Url url;
  std::optional<Url> compare_url;  // B of --compare; url is A
  std::string model;               // empty: the server's first
  Endpoint endpoint = Endpoint::kChat;
  std::string api_key;
  std::string extra_body;  // a JSON object merged into every request
  std::optional<double> temperature;
  bool ignores_eos = false;
  bool asks_token_ids = false;
  TlsOptions tls;

  int concurrency = 1;         // closed loop
  int max_concurrency = 0;     // open loop; 0: no limit
  double ramp_up_seconds = 0;  // closed loop: the streams start spread over this time
  std::optional<uint64_t> num_prompts;
  std::optional<double> duration_seconds;
  int warmup = -1;  // requests; -1: as many as run at once
  double timeout_seconds = 600;
  uint64_t seed = 0;
  ArrivalConfig arrivals;
  DatasetConfig dataset;
  SweepKind sweep = SweepKind::kNone;
  std::vector<double> sweep_points;
  Slo slo;
  AuditLimits audit;
  bool runs_audit = true;
  std::string metrics_url;  // empty: <url>/metrics; "off": none

  std::string json_file;
  std::string csv_file;
  std::string html_file;
  bool saves_detailed = false;
  std::string label;
  std::string progress = "auto";  // auto, on, off

  // kInvalidArgument names the flag, its value and the limit.
  absl::Status Validate() const;
  // The same for what --concurrency, --max-concurrency or --sweep needs of `max_files` open files;
  // negative: any number.
  absl::Status ValidateFileLimit(int64_t max_files) const;

  // Requests that run at once: the concurrency, or the open loop's cap (0: no limit).
  int max_in_flight() const { return arrivals.is_open_loop() ? max_concurrency : concurrency; }
  // How many requests a run with so many at once sends, unless --duration, the end of the trace or
  // the user ends it first.
  uint64_t num_requests(int max_in_flight) const;
};

}  // namespace weightless::loadtest
