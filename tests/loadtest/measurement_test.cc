// Whole sessions against the mock server: load shapes, comparison, interruption, reports.
#include "loadtest/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <csignal>
#include <set>

#include "common/concat.h"
#include "common/json.h"
#include "loadtest/text_file.h"
#include "tests/loadtest/mock_server.h"

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Config ConfigFor(const MockServer& server) {
  Config config;
  config.url = server.url();
  config.num_prompts = 12;
  config.warmup = 0;
  config.dataset.input_tokens = {8, 8};
  config.dataset.output_tokens = {4, 4};
  config.progress = "off";
  return config;
}

Session MustMeasure(const Config& config) {
  auto session = Measure(config);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : Session{};
}

TEST(MeasurementTest, AsksForWhatTheFlagsSay) {
  MockServer server({});
  Config config = ConfigFor(server);
  config.num_prompts = 1;
  config.ignores_eos = true;
  config.asks_token_ids = true;
  config.temperature = 0.5;
  config.extra_body = R"({"top_k": 3})";
  MustMeasure(config);
  server.Stop();
  const auto body = ParseJson(server.bodies().at(0))->get_object();
  EXPECT_EQ(body.at("model"), "mock");
  EXPECT_EQ(body.at("max_tokens"), 4);
  EXPECT_EQ(body.at("stream"), true);
  EXPECT_EQ(body.at("stream_options").at("include_usage"), true);
  EXPECT_EQ(body.at("ignore_eos"), true);
  EXPECT_EQ(body.at("return_token_ids"), true);
  EXPECT_EQ(body.at("temperature"), 0.5);
  EXPECT_EQ(body.at("top_k"), 3);
  EXPECT_EQ(body.at("messages").at(0).at("role"), "user");
}

TEST(MeasurementTest, SameSeedSendsTheSameRequests) {
  std::vector<std::vector<std::string>> bodies;
  for (int i = 0; i < 2; ++i) {
    MockServer server({});
    MustMeasure(ConfigFor(server));
    server.Stop();
    bodies.push_back(server.bodies());
  }
  EXPECT_EQ(bodies[0], bodies[1]);
}

TEST(MeasurementTest, ClosedLoopKeepsItsStreamsBusy) {
  const MockServer server({.ttft_seconds = 0.01});
  Config config = ConfigFor(server);
  config.concurrency = 4;
  const Session session = MustMeasure(config);
  EXPECT_EQ(session.reports[0].summary.completed, 12u);
  EXPECT_EQ(session.reports[0].summary.max_concurrency, 4);
}

TEST(MeasurementTest, DurationEndsARun) {
  const MockServer server({.ttft_seconds = 0.01});
  Config config = ConfigFor(server);
  config.num_prompts.reset();
  config.duration_seconds = 0.3;
  const Session session = MustMeasure(config);
  EXPECT_GE(session.reports[0].summary.completed, 1u);
  EXPECT_LE(session.reports[0].summary.completed, 30u);
}

// Requests are due each 2 ms but take 20 ms one at a time: the last of 12 waits about 218 ms, which
// only the latency from the intended time shows.
TEST(MeasurementTest, OpenLoopShowsTheWaitOfAnOverloadedServer) {
  const MockServer server({.ttft_seconds = 0.02});
  Config config = ConfigFor(server);
  config.arrivals.rate = 500;
  config.arrivals.kind = ArrivalKind::kConstant;
  config.max_concurrency = 1;
  const Session session = MustMeasure(config);
  const Summary& s = session.reports[0].summary;
  EXPECT_EQ(s.completed, 12u);
  EXPECT_EQ(s.max_concurrency, 1);
  EXPECT_GE(s.e2e_intended.max, 0.21);
  EXPECT_LE(s.e2e.p50, 0.1);
  EXPECT_GE(s.e2e_intended.max - s.e2e.p50, 0.1);
  EXPECT_THAT(TableReport(session), HasSubstr("E2E*"));
}

// Due at 0, 2, .. 198 ms: one at a time the server takes about ten of them.
TEST(MeasurementTest, OpenLoopTellsWhatWasDueButNeverSent) {
  const MockServer server({.ttft_seconds = 0.02});
  Config config = ConfigFor(server);
  config.num_prompts.reset();
  config.duration_seconds = 0.2;
  config.arrivals.rate = 500;
  config.arrivals.kind = ArrivalKind::kConstant;
  config.max_concurrency = 1;
  const Session session = MustMeasure(config);
  const uint64_t sent = session.reports[0].result->records.size();
  EXPECT_LE(sent, 11u);
  const std::string note = Concat(100 - sent, " requests were due, but not sent before the end");
  EXPECT_THAT(TableReport(session), HasSubstr(note));
  EXPECT_THAT(HtmlReport(session), HasSubstr(note));
  const auto own = ParseJson(JsonReport(session))->at("loadtest").as_object();
  ASSERT_TRUE(own.contains("unsent"));
  EXPECT_EQ(own.at("unsent"), 100 - sent);
  const std::string csv = CsvReport(session);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 101);
  EXPECT_THAT(csv, HasSubstr(",unsent,"));
}

// Streams start each half second, but the first has sent all there is by then.
TEST(MeasurementTest, RampUpEndsWithThePrompts) {
  const MockServer server({});
  Config config = ConfigFor(server);
  config.concurrency = 4;
  config.num_prompts = 3;
  config.ramp_up_seconds = 2;
  const Session session = MustMeasure(config);
  EXPECT_EQ(session.reports[0].summary.completed, 3u);
  EXPECT_LT(session.reports[0].summary.duration_seconds, 0.45);
}

TEST(MeasurementTest, SweepRunsEachPoint) {
  const MockServer server({.ttft_seconds = 0.002});
  Config config = ConfigFor(server);
  config.sweep = SweepKind::kConcurrency;
  config.sweep_points = {1, 3};
  config.warmup = 2;
  const Session session = MustMeasure(config);
  ASSERT_EQ(session.reports.size(), 2u);
  EXPECT_EQ(session.reports[1].summary.max_concurrency, 3);
  EXPECT_THAT(HtmlReport(session), HasSubstr("Load against latency"));
}

TEST(MeasurementTest, ComparesTwoServersOnTheSamePrompts) {
  MockServer fast({.ttft_seconds = 0.01, .itl_seconds = 0.005});
  MockServer slow({.ttft_seconds = 0.03, .itl_seconds = 0.005});
  Config config = ConfigFor(fast);
  config.compare_url = slow.url();
  config.concurrency = 2;
  config.num_prompts = 20;
  const Session session = MustMeasure(config);
  ASSERT_TRUE(session.comparison);
  EXPECT_EQ(session.comparison->num_pairs, 20u);
  for (const ComparisonRow& row : session.comparison->rows) {
    if (std::string_view(row.name) != "TTFT p50") continue;
    EXPECT_GT(row.ratio.low, 1.5);
    EXPECT_LE(row.ratio.low, row.ratio.value);
    EXPECT_LE(row.ratio.value, row.ratio.high);
  }
  fast.Stop();
  slow.Stop();
  std::vector<std::string> a = fast.bodies();
  std::vector<std::string> b = slow.bodies();
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
  EXPECT_THAT(TableReport(session), HasSubstr("B / A over 20 pairs"));
}

// Else the short prompts would find one server always fresh, the long ones the other.
TEST(MeasurementTest, ComparesInAnOrderThatDoesNotDependOnThePrompt) {
  const MockServer a({});
  const MockServer b({});
  Config config = ConfigFor(a);
  config.compare_url = b.url();
  config.num_prompts = 1000;
  config.dataset.input_tokens = {10, 100};
  config.dataset.output_tokens = {1, 1};
  const Session session = MustMeasure(config);
  double sums[2] = {};
  double counts[2] = {};
  std::vector<bool> was_asked(1000);
  for (const Record& record : session.reports[0].result->records) {
    if (was_asked[record.index]) continue;
    was_asked[record.index] = true;
    sums[record.target] += static_cast<double>(record.planned_input);
    ++counts[record.target];
  }
  EXPECT_NEAR(counts[0], 500, 50);
  const double mean_a = sums[0] / counts[0];
  EXPECT_NEAR(sums[1] / counts[1], mean_a, 0.1 * mean_a);
}

// A file of eight prompts, and two streams: two prompts warm up.
Config FileConfigFor(const MockServer& server, const std::string& file) {
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += Concat("{\"prompt\": \"prompt ", i, "\"}\n");
  EXPECT_TRUE(WriteTextFile(file, lines).ok());
  Config config = ConfigFor(server);
  config.concurrency = 2;
  config.warmup = -1;
  config.dataset.kind = DatasetKind::kJsonl;
  config.dataset.file = file;
  return config;
}

TEST(MeasurementTest, PromptsOfAFileAreNotSentTwiceWhileItLasts) {
  MockServer server({});
  const std::string file = ::testing::TempDir() + "loadtest_prompts.jsonl";
  Config config = FileConfigFor(server, file);
  config.num_prompts = 4;
  const Session session = MustMeasure(config);
  std::remove(file.c_str());
  server.Stop();
  const std::vector<std::string>& bodies = server.bodies();
  EXPECT_EQ(bodies.size(), 6u);
  EXPECT_EQ(std::set<std::string>(bodies.begin(), bodies.end()).size(), 6u);
  EXPECT_THAT(session.prompts, Not(HasSubstr("more than once")));
}

TEST(MeasurementTest, SaysThatAFileIsTooShort) {
  const MockServer server({});
  const std::string file = ::testing::TempDir() + "loadtest_few_prompts.jsonl";
  Config config = FileConfigFor(server, file);
  config.num_prompts = 7;
  const Session session = MustMeasure(config);
  std::remove(file.c_str());
  EXPECT_THAT(TableReport(session),
              HasSubstr("its 8 prompts were too few for 9, warm-up included"));
}

TEST(MeasurementTest, InterruptKeepsWhatHasEnded) {
  const MockServer server({.ttft_seconds = 0.005});
  Config config = ConfigFor(server);
  config.num_prompts = 1'000'000;
  // The signals come from the only thread there is, while the run goes on: one wish, told twice.
  std::signal(SIGALRM, [](int) {
    std::raise(SIGTERM);
    std::raise(SIGINT);
  });
  ualarm(150'000, 0);
  const Session session = MustMeasure(config);
  EXPECT_TRUE(session.was_interrupted);
  EXPECT_EQ(ExitCode(session), 130);
  EXPECT_GE(session.reports[0].summary.completed, 1u);
  EXPECT_THAT(TableReport(session), HasSubstr("(interrupted)"));
}

TEST(MeasurementTest, SaysWhatIsWrongBeforeItStarts) {
  MockServer refusing({.fault = Fault::kRefusal});
  Config config = ConfigFor(refusing);
  config.warmup = 2;
  EXPECT_THAT(std::string(Measure(config).status().message()),
              HasSubstr("failed; the first: HTTP 503: overloaded"));
  refusing.Stop();
  MockServer gone({});
  config.url = gone.url();
  gone.Stop();
  EXPECT_FALSE(Measure(config).ok());
}

TEST(MeasurementTest, WithoutTokenizeWordsAreCounted) {
  const MockServer server({.has_tokenize = false});
  const Session session = MustMeasure(ConfigFor(server));
  EXPECT_THAT(session.prompts, HasSubstr("one for each word (the server has no /tokenize)"));
}

TEST(MeasurementTest, RequestsTimeOut) {
  const MockServer server({.ttft_seconds = 5});
  Config config = ConfigFor(server);
  config.num_prompts = 1;
  config.timeout_seconds = 0.05;
  const Session session = MustMeasure(config);
  EXPECT_EQ(session.reports[0].summary.failed, 1u);
  EXPECT_THAT(TableReport(session), HasSubstr("no complete response within 50ms"));
  EXPECT_EQ(ExitCode(session), 1);
}

TEST(ReportTest, JsonHasTheKeysOfVllmAndOurs) {
  const MockServer server({.ttft_seconds = 0.001});
  Config config = ConfigFor(server);
  config.api_key = "secret";
  config.saves_detailed = true;
  config.slo.ttft_seconds = 10;
  const Session session = MustMeasure(config);
  const std::string text = JsonReport(session);
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  const auto object = ParseJson(text)->get_object();
  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "p99_tpot_ms",
                          "median_itl_ms",
                          "p99_e2el_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "latencies",
                          "start_times",
                          "generated_texts",
                          "errors",
                          "loadtest"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object.at("completed"), 12);
  EXPECT_EQ(object.at("total_output_tokens"), 48);
  EXPECT_EQ(object.at("generated_texts").at(0), "word word word word ");
  EXPECT_EQ(object.at("loadtest").at("audit").as_array().size(), 5u);
  EXPECT_TRUE(object.at("loadtest").at("latencies").as_object().contains("itl_per_token"));
}

TEST(ReportTest, CsvHasALineForEachRequest) {
  const MockServer server({});
  const std::string text = CsvReport(MustMeasure(ConfigFor(server)));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 13);
}

TEST(ReportTest, HtmlNeedsNothingElse) {
  const MockServer server({});
  Config config = ConfigFor(server);
  config.label = "<script>x</script>";
  const std::string page = HtmlReport(MustMeasure(config));
  for (const char* foreign : {"<script", "<link", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("TTFT distribution"));
}

}  // namespace
}  // namespace weightless::loadtest
