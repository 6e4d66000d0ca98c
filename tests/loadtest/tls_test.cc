#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "common/concat.h"
#include "loadtest/measurement.h"
#include "loadtest/text_file.h"
#include "tests/loadtest/mock_server.h"
#include "tests/loadtest/tls_proxy.h"

namespace weightless::loadtest {
namespace {

using ::testing::HasSubstr;

Config ConfigFor(const TlsProxy& proxy) {
  Config config;
  config.url = {.is_tls = true, .host = "127.0.0.1", .port = proxy.port(), .path = {}};
  config.model = "mock";
  config.num_prompts = 8;
  config.concurrency = 2;
  config.dataset.tokenizer = "words";
  config.dataset.output_tokens = {4, 4};
  config.progress = "off";
  config.audit.ttft_tolerance_seconds = 10;
  config.audit.loop_lag_seconds = 10;  // hiccups of the machine are not what these tests are about
  return config;
}

TEST(TlsTest, MeasuresThroughTls) {
  const MockServer server({.ttft_seconds = 0.01, .itl_seconds = 0.002});
  const TlsProxy proxy(server.url().port);
  Config config = ConfigFor(proxy);
  config.tls.ca_file = ::testing::TempDir() + "loadtest_tls_ca.pem";
  ASSERT_TRUE(WriteTextFile(config.tls.ca_file, proxy.certificate_pem()).ok());
  const auto session = Measure(config);
  std::remove(config.tls.ca_file.c_str());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->reports[0].summary.completed, 8u);
  EXPECT_GE(session->reports[0].summary.ttft.min, 0.01);
  EXPECT_EQ(ExitCode(*session), 0) << TableReport(*session);
}

TEST(TlsTest, RefusesACertificateItDoesNotTrustUnlessTold) {
  const MockServer server({});
  const TlsProxy proxy(server.url().port);
  Config config = ConfigFor(proxy);
  EXPECT_THAT(std::string(Measure(config).status().message()), HasSubstr("TLS with 127.0.0.1"));
  config.tls.skips_verification = true;
  EXPECT_TRUE(Measure(config).ok());
}

TEST(TlsTest, RefusesACertificateOfAnotherName) {
  const MockServer server({});
  const TlsProxy proxy(server.url().port);
  Config config = ConfigFor(proxy);
  config.url.host = "localhost";
  config.tls.ca_file = ::testing::TempDir() + "loadtest_tls_name.pem";
  ASSERT_TRUE(WriteTextFile(config.tls.ca_file, proxy.certificate_pem()).ok());
  EXPECT_THAT(std::string(Measure(config).status().message()), HasSubstr("TLS with localhost"));
  std::remove(config.tls.ca_file.c_str());
}

TEST(TlsTest, NamesAFileThatCannotBeRead) {
  const MockServer server({});
  const TlsProxy proxy(server.url().port);
  Config config = ConfigFor(proxy);
  config.tls.ca_file = "no-such-file.pem";
  EXPECT_THAT(std::string(Measure(config).status().message()), HasSubstr("no-such-file.pem"));
}

}  // namespace
}  // namespace weightless::loadtest
