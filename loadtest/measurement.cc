#include "loadtest/measurement.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "loadtest/arrivals.h"
#include "loadtest/interrupt.h"
#include "loadtest/progress.h"
#include "loadtest/prompts.h"
#include "loadtest/target.h"

namespace weightless::loadtest {
namespace {

// Prompts of different runs are different, so that no run finds those of another in a prefix cache.
// A dataset without an end has so many for each run, the same whatever other runs sent.
constexpr uint64_t kPromptsPerRun = uint64_t{1} << 32;

// The random stream that says who is asked first; those below are the prompts'.
constexpr uint64_t kOrderStream = uint64_t{1} << 42;

// One point of a sweep, or the only run.
struct Point {
  std::string name{};
  double value = 0;
  int max_in_flight = 0;
  ArrivalConfig arrivals{};
};

std::string LocalDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

std::string LoadText(const Config& config) {
  const ArrivalConfig& a = config.arrivals;
  const std::string cap =
      config.max_concurrency > 0 ? Concat(", at most ", config.max_concurrency, " at once") : "";
  if (config.sweep == SweepKind::kConcurrency) return "closed loop, sweep of streams";
  if (config.sweep == SweepKind::kRate) return "open loop, sweep of rates" + cap;
  if (!a.trace_file.empty()) return Concat("open loop, trace ", a.trace_file, cap);
  const char* kind = a.kind == ArrivalKind::kConstant  ? "constant"
                     : a.kind == ArrivalKind::kPoisson ? "Poisson"
                                                       : "gamma";
  if (a.ramp != RampKind::kNone) {
    return Concat("open loop, ", kind, ", ", a.ramp == RampKind::kLinear ? "linear" : "exponential",
                  " ramp from ", a.ramp_start_rate, " to ", a.ramp_end_rate, " requests/s", cap);
  }
  if (a.rate) return Concat("open loop, ", kind, ", ", *a.rate, " requests/s", cap);
  return Concat("closed loop, ", config.concurrency,
                config.concurrency == 1 ? " stream" : " streams",
                config.compare_url ? ", each asks both servers in turn" : "");
}

std::vector<Point> Points(const Config& config) {
  if (config.sweep == SweepKind::kNone) {
    return {{.name = config.label.empty() ? config.url.ToString() : config.label,
             .max_in_flight = config.max_in_flight(),
             .arrivals = config.arrivals}};
  }
  std::vector<Point> points;
  for (const double value : config.sweep_points) {
    Point point{.value = value, .arrivals = config.arrivals};
    if (config.sweep == SweepKind::kRate) {
      point.name = Concat("rate ", value);
      point.max_in_flight = config.max_concurrency;
      point.arrivals.rate = value;
    } else {
      point.name = Concat("concurrency ", value);
      point.max_in_flight = static_cast<int>(value);
      point.arrivals.rate.reset();
    }
    points.push_back(std::move(point));
  }
  return points;
}

class Measurement {
 public:
  explicit Measurement(const Config& config) : config_(config) {}

  absl::StatusOr<Session> Run() {
    RETURN_IF_ERROR(AddTarget(config_.url));
    if (config_.compare_url) RETURN_IF_ERROR(AddTarget(*config_.compare_url));
    ASSIGN_OR_RETURN(prompts_, MakePrompts(config_, targets_.front().api(), session_.model));
    session_.config = config_;
    session_.date = LocalDate();
    session_.load = LoadText(config_);
    session_.prompts = prompts_->description;
    const std::vector<Point> points = Points(config_);
    CatchInterrupts();
    for (size_t i = 0; i < points.size() && !IsInterrupted(); ++i) {
      RETURN_IF_ERROR(WarmUp(points[i], i));
      if (!IsInterrupted()) RunPoint(points[i], i);
    }
    session_.was_interrupted = IsInterrupted();
    NoteRepeatedPrompts();
    return std::move(session_);
  }

 private:
  absl::Status AddTarget(const Url& url) {
    ASSIGN_OR_RETURN(Target target, Target::Open(url, config_));
    if (session_.model.empty()) session_.model = target.model();
    targets_.push_back(std::move(target));
    return runner_.AddTarget(url, config_.tls);
  }

  // A dataset that ends is used from its start to its end, over all runs.
  uint64_t FirstPrompt(uint64_t run_idx) const {
    return prompts_->dataset->size() ? num_prompts_sent_ : run_idx * kPromptsPerRun;
  }

  void NoteRepeatedPrompts() {
    const std::optional<uint64_t> size = prompts_->dataset->size();
    if (!size || num_prompts_sent_ <= *size) return;
    session_.prompts += Concat("; its ", *size, " prompts were too few for ", num_prompts_sent_,
                               ", warm-up included: some were sent more than once");
  }

  // Everything of a plan but when requests are sent. `run_idx` counts warm-ups, too.
  RunPlan MakePlan(int max_in_flight, uint64_t num_requests, uint64_t run_idx) {
    const uint64_t first_prompt = FirstPrompt(run_idx);
    RunPlan plan;
    plan.max_in_flight = max_in_flight;
    plan.timeout = absl::Seconds(config_.timeout_seconds);
    plan.stops_on_interrupt = true;
    plan.keeps_text = config_.saves_detailed;
    plan.next_request = NextRequest(num_requests);
    plan.format_request = [this, first_prompt](const PlannedRequest& request, Record& record) {
      const Prompt prompt = prompts_->dataset->Get(first_prompt + request.prompt_idx);
      record.planned_input = prompt.num_tokens;
      record.max_tokens = prompt.max_tokens;
      return targets_[request.target].Request(prompt);
    };
    return plan;
  }

  // Prompts in order. With two targets a stream asks both before it takes the next prompt; which is
  // first is drawn for each prompt.
  std::function<std::optional<PlannedRequest>(int)> NextRequest(uint64_t num_requests) {
    struct State {
      uint64_t next = 0;
      std::vector<std::optional<PlannedRequest>> second;  // by stream
    };
    auto state = std::make_shared<State>();
    const bool is_pair = targets_.size() == 2;
    return [this, state, is_pair, num_requests](int slot) -> std::optional<PlannedRequest> {
      const auto stream = static_cast<size_t>(slot);
      if (state->second.size() <= stream) state->second.resize(stream + 1);
      if (state->second[stream]) return std::exchange(state->second[stream], std::nullopt);
      if (state->next >= num_requests) return std::nullopt;
      PlannedRequest request{.prompt_idx = state->next++};
      ++num_prompts_sent_;
      if (is_pair) {
        request.target = Random(config_.seed, kOrderStream + request.prompt_idx).Below(2);
        state->second[stream] = PlannedRequest{request.prompt_idx, 1 - request.target};
      }
      return request;
    };
  }

  absl::Status WarmUp(const Point& point, size_t point_idx) {
    const bool is_open = point.arrivals.is_open_loop();
    const int num_requests = config_.warmup >= 0 ? config_.warmup
                             : is_open           ? 1
                                                 : point.max_in_flight;
    if (num_requests == 0) return absl::OkStatus();
    const int streams = point.max_in_flight > 0 ? std::min(point.max_in_flight, num_requests) : 1;
    const RunPlan plan = MakePlan(streams, static_cast<uint64_t>(num_requests), 2 * point_idx + 1);
    const RunResult result = runner_.Run(plan);
    if (IsInterrupted()) return absl::OkStatus();
    for (size_t target = 0; target < targets_.size(); ++target) {
      const Record* failure = nullptr;
      bool has_success = false;
      for (const Record& record : result.records) {
        if (record.target != target) continue;
        has_success = has_success || record.outcome == Outcome::kCompleted;
        if (record.outcome == Outcome::kFailed && failure == nullptr) failure = &record;
      }
      if (failure == nullptr || has_success) continue;
      return absl::UnavailableError(Concat("every warm-up request to ",
                                           targets_[target].url().ToString(),
                                           " failed; the first: ", failure->error));
    }
    return absl::OkStatus();
  }

  void RunPoint(const Point& point, size_t point_idx) {
    const uint64_t num_requests = NumRequests(point);
    RunPlan plan = MakePlan(point.max_in_flight, num_requests, 2 * point_idx);
    plan.duration_seconds = config_.duration_seconds;
    plan.ramp_up_seconds = config_.ramp_up_seconds;
    if (point.arrivals.is_open_loop()) {
      auto arrivals = std::make_shared<Arrivals>(
          point.arrivals, config_.seed, Arrivals::Extent{num_requests, config_.duration_seconds},
          prompts_->trace);
      plan.next_arrival = [arrivals] { return arrivals->Next(); };
    }
    const bool is_counted = num_requests < std::numeric_limits<uint64_t>::max();
    Progress progress(config_.progress,
                      is_counted ? std::optional(num_requests * targets_.size()) : std::nullopt,
                      config_.duration_seconds);
    plan.on_progress = [&progress](const LiveStats& stats) { progress.Show(stats); };
    std::vector<std::optional<ServerCounts>> before;
    for (Target& target : targets_) before.push_back(target.Scrape());
    if (IsInterrupted()) return;
    auto result = std::make_shared<const RunResult>(runner_.Run(plan));
    progress.Finish();
    for (size_t target = 0; target < targets_.size(); ++target) {
      AddReport(point, result, target, before[target]);
    }
    if (targets_.size() < 2) return;
    progress.Say("comparing the two servers");
    session_.comparison = Compare(result->records, config_.seed);
  }

  uint64_t NumRequests(const Point& point) const {
    const uint64_t most = config_.num_requests(point.max_in_flight);
    return prompts_->trace.empty() ? most : std::min<uint64_t>(most, prompts_->trace.size());
  }

  void AddReport(const Point& point, const std::shared_ptr<const RunResult>& result, size_t target,
                 const std::optional<ServerCounts>& before) {
    Report report{.name = point.name, .url = targets_[target].url().ToString()};
    if (targets_.size() == 2) report.name = Concat(target == 0 ? "A: " : "B: ", report.url);
    report.sweep_point = point.value;
    report.concurrency = point.max_in_flight;
    report.is_open_loop = point.arrivals.is_open_loop();
    report.rate = point.arrivals.rate;
    report.result = result;
    report.target = target;
    report.samples = Collect(result->records, target);
    report.summary = Summarize(*result, target, report.samples, config_.slo);
    if (config_.runs_audit) {
      std::optional<ServerCounts> server;
      if (before) server = targets_[target].ScrapeSince(*before, report.summary.completed);
      report.audit = Audit({.result = *result,
                            .target = target,
                            .summary = report.summary,
                            .limits = config_.audit,
                            .is_open_loop = point.arrivals.is_open_loop(),
                            .server = server,
                            .had_server = before.has_value(),
                            .no_server_reason = targets_[target].no_metrics_reason()});
    }
    session_.reports.push_back(std::move(report));
  }

  const Config& config_;
  Session session_;
  std::vector<Target> targets_;
  std::unique_ptr<PromptSource> prompts_;
  Runner runner_;
  uint64_t num_prompts_sent_ = 0;
};

// Streams that ended without their end, when none completed: the audit's finding says more than
// that nothing was measured.
bool HasBadStream(const Report& report) {
  return std::any_of(report.audit.begin(), report.audit.end(), [](const AuditCheck& check) {
    return std::string_view(check.name) == "streams" && check.verdict == Verdict::kFailed;
  });
}

}  // namespace

absl::StatusOr<Session> Measure(const Config& config) { return Measurement(config).Run(); }

int ExitCode(const Session& session) {
  if (session.was_interrupted) return 130;
  for (const Report& report : session.reports) {
    if (report.summary.completed == 0 && !HasBadStream(report)) return 1;
  }
  const bool has_failure =
      std::any_of(session.reports.begin(), session.reports.end(),
                  [](const Report& report) { return HasFailure(report.audit); });
  return has_failure ? 3 : 0;
}

}  // namespace weightless::loadtest
