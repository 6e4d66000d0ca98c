#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/flags.h"
#include "loadtest/url.h"

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::optional<int> Read(std::vector<const char*> arguments, Config& config) {
  arguments.insert(arguments.begin(), "loadtest");
  return ReadFlags(static_cast<int>(arguments.size()), arguments.data(), config);
}

// The message of a usage error.
std::string ErrorOf(std::vector<const char*> arguments) {
  Config config;
  CaptureStderr();
  EXPECT_EQ(Read(std::move(arguments), config), 2);
  return GetCapturedStderr();
}

TEST(FlagsTest, DefaultsDriveALocalServer) {
  Config config;
  EXPECT_EQ(Read({}, config), std::nullopt);
  EXPECT_EQ(config.url.ToString(), "http://127.0.0.1:8000");
  EXPECT_EQ(config.concurrency, 1);
  EXPECT_EQ(config.num_requests(1), 50u);
  EXPECT_EQ(config.num_requests(32), 320u);
}

TEST(FlagsTest, ReadsWhatNeedsASecondLook) {
  Config config;
  EXPECT_EQ(Read({"--compare", "http://a:1", "https://b/v1", "--input-tokens", "10-20", "--slo",
                  "ttft:200", "e2e:3000", "--endpoint", "completions", "--warmup", "-1"},
                 config),
            std::nullopt);
  EXPECT_EQ(config.compare_url->ToString(), "https://b:443");
  EXPECT_EQ(config.dataset.input_tokens.low, 10u);
  EXPECT_EQ(config.dataset.input_tokens.high, 20u);
  EXPECT_DOUBLE_EQ(*config.slo.ttft_seconds, 0.2);
  EXPECT_DOUBLE_EQ(*config.slo.e2e_seconds, 3);
  EXPECT_FALSE(config.slo.tpot_seconds);
}

TEST(FlagsTest, ReadsSweepsAndRamps) {
  Config config;
  EXPECT_EQ(Read({"--sweep", "rate=1,2.5,4"}, config), std::nullopt);
  EXPECT_THAT(config.sweep_points, ::testing::ElementsAre(1, 2.5, 4));
  Config ramp;
  EXPECT_EQ(Read({"--ramp", "exponential:1:20", "--duration", "9"}, ramp), std::nullopt);
  EXPECT_DOUBLE_EQ(ramp.arrivals.ramp_end_rate, 20);
}

TEST(FlagsTest, ErrorsNameFlagValueAndLimit) {
  EXPECT_THAT(ErrorOf({"--concurrency", "0"}), HasSubstr("--concurrency 0 is not between 1 and"));
  EXPECT_THAT(ErrorOf({"--input-tokens", "20-10"}),
              HasSubstr("--input-tokens 10 is not between 20"));
  EXPECT_THAT(ErrorOf({"--input-tokens", "many"}), HasSubstr("--input-tokens \"many\" is not"));
  EXPECT_THAT(ErrorOf({"--slo", "ttft"}), HasSubstr("--slo \"ttft\" is not NAME:MILLISECONDS"));
  EXPECT_THAT(ErrorOf({"--slo", "itl:3"}), HasSubstr("about ttft, tpot or e2e"));
  EXPECT_THAT(ErrorOf({"--endpoint", "embeddings"}), HasSubstr("one of chat completions"));
  EXPECT_THAT(ErrorOf({"--url", "localhost:8000"}), HasSubstr("http:// or https://"));
  EXPECT_THAT(ErrorOf({"--request-rate", "0"}), HasSubstr("--request-rate 0"));
  EXPECT_THAT(ErrorOf({"--sweep", "streams=1"}), HasSubstr("--sweep \"streams\" is not one of"));
  EXPECT_THAT(ErrorOf({"--sweep", "concurrency=1,x"}), HasSubstr("--sweep \"x\" is not a number"));
  EXPECT_THAT(ErrorOf({"--dataset", "jsonl"}), HasSubstr("needs --dataset-file"));
  EXPECT_THAT(ErrorOf({"--progress", "maybe"}), HasSubstr("none of auto, on, off"));
  EXPECT_THAT(ErrorOf({"--no-such-flag"}), HasSubstr("--no-such-flag"));
}

TEST(FlagsTest, RefusesWhatExcludesEachOther) {
  EXPECT_THAT(ErrorOf({"--request-rate", "1", "--ramp", "linear:1:2", "--duration", "1"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(ErrorOf({"--compare", "http://a", "http://b", "--request-rate", "1"}),
              HasSubstr("--compare and an open loop"));
  EXPECT_THAT(ErrorOf({"--ramp", "linear:1:2"}), HasSubstr("--num-prompts or --duration"));
  EXPECT_THAT(ErrorOf({"--compare", "http://a", "http://b", "--metrics-url", "http://a/metrics"}),
              HasSubstr("--metrics-url names one server, but --compare has two"));
  Config config;
  EXPECT_EQ(Read({"--compare", "http://a", "http://b", "--metrics-url", "off"}, config),
            std::nullopt);
}

TEST(FlagsTest, RefusesWhatWouldHaveNoEffect) {
  EXPECT_THAT(ErrorOf({"--request-rate", "1", "--concurrency", "4"}),
              HasSubstr("--concurrency has an effect only in a closed loop"));
  EXPECT_THAT(ErrorOf({"--max-concurrency", "4"}), HasSubstr("only in an open loop"));
  EXPECT_THAT(ErrorOf({"--burstiness", "2", "--request-rate", "1"}), HasSubstr("--arrival gamma"));
  EXPECT_THAT(ErrorOf({"--num-prefixes", "2"}), HasSubstr("with --dataset shared-prefix"));
  EXPECT_THAT(ErrorOf({"--tls-insecure"}), HasSubstr("with an https URL"));
  EXPECT_THAT(ErrorOf({"--url", "https://h", "--tls-cert", "c.pem"}), HasSubstr("go together"));
  Config config;
  EXPECT_EQ(
      Read({"--sweep", "rate=1,2", "--max-concurrency", "4", "--arrival", "constant"}, config),
      std::nullopt);
}

TEST(FlagsTest, StreamsFitTheLimitOfOpenFiles) {
  const auto message = [](std::vector<const char*> arguments, int64_t max_files) {
    Config config;
    EXPECT_EQ(Read(std::move(arguments), config), std::nullopt);
    return std::string(config.ValidateFileLimit(max_files).message());
  };
  EXPECT_EQ(message({"--concurrency", "100"}, 140), "");
  EXPECT_EQ(message({"--concurrency", "100"}, -1), "");
  EXPECT_EQ(message({"--request-rate", "9"}, 64), "");
  EXPECT_THAT(message({"--concurrency", "100"}, 139),
              HasSubstr("--concurrency 100 needs 140 open files, but the limit is 139"));
  EXPECT_THAT(message({"--concurrency", "100", "--compare", "http://a", "http://b"}, 200),
              HasSubstr("--concurrency 100 needs 240"));
  EXPECT_THAT(message({"--sweep", "concurrency=1,100,10"}, 64), HasSubstr("--sweep 100 needs"));
  EXPECT_THAT(message({"--sweep", "rate=1,2", "--max-concurrency", "100"}, 64),
              HasSubstr("--max-concurrency 100 needs"));
}

TEST(UrlTest, ReadsHostsPortsAndPaths) {
  const auto text = [](std::string_view url) { return ParseUrl(url)->ToString(); };
  EXPECT_EQ(text("http://h"), "http://h:80");
  EXPECT_EQ(text("https://h/v1/"), "https://h:443");
  EXPECT_EQ(text("http://h:81/api/v1"), "http://h:81/api");
  EXPECT_EQ(text("http://[::1]:8000"), "http://[::1]:8000");
  EXPECT_EQ(ParseUrl("http://[::1]:8000")->host, "::1");
}

TEST(UrlTest, RefusesWhatIsNoBaseUrl) {
  for (const char* url : {"", "h:80", "ftp://h", "http://", "http://h:0", "http://h:99999",
                          "http://h:x", "http://h/?a=b", "http://h/ x", "http://[::1",
                          "http://[::1]x", "http://::1:80", "http://u:p@h", "http://[]"}) {
    EXPECT_EQ(ParseUrl(url).status().code(), absl::StatusCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace weightless::loadtest
