#include "router/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace weightless::router {
namespace {

RouterConfig Valid() {
  RouterConfig config;
  config.workers = {"127.0.0.1:9000"};
  return config;
}

std::string Refusal(const std::function<void(RouterConfig&)>& change) {
  RouterConfig config = Valid();
  change(config);
  return std::string(Validate(config).message());
}

TEST(RouterConfigTest, DefaultsAndAWorkerAreEnough) { EXPECT_TRUE(Validate(Valid()).ok()); }

TEST(RouterConfigTest, NamesFlagValueAndLimit) {
  EXPECT_EQ(Refusal([](auto& c) { c.port = 70000; }), "--port 70000 is not in [0, 65535]");
  EXPECT_EQ(Refusal([](auto& c) { c.plan_ahead = 0; }), "--plan-ahead 0 is not in [1, 64]");
  EXPECT_EQ(Refusal([](auto& c) { c.http.num_threads = 0; }), "--http-threads 0 is not in [1, 64]");
  EXPECT_EQ(Refusal([](auto& c) { c.http.max_body_bytes = 1; }),
            "--max-body-bytes 1 is not in [1024, 1073741824]");
  EXPECT_EQ(Refusal([](auto& c) { c.http.idle_timeout = absl::ZeroDuration(); }),
            "--idle-timeout 0 is not in [1ms, 8760h]");
  EXPECT_EQ(Refusal([](auto& c) { c.drain_timeout = absl::Seconds(-1); }),
            "--drain-timeout -1s is not in [1ms, 8760h]");
  EXPECT_EQ(Refusal([](auto& c) { c.step_timeout = absl::Hours(10000); }),
            "--step-timeout 10000h is not in [1ms, 8760h]");
  EXPECT_EQ(Refusal([](auto& c) { c.request_timeout = absl::Seconds(-1); }),
            "--request-timeout -1s is not in [0, 8760h]");
  EXPECT_EQ(Refusal([](auto& c) { c.stream_delay = absl::InfiniteDuration(); }),
            "--stream-delay-ms inf is not in [0, 8760h]");
  EXPECT_EQ(Refusal([](auto& c) { c.log_level = "loud"; }),
            "--log-level \"loud\" is none of debug, info, warning, error");
}

TEST(RouterConfigTest, TlsNeedsBothFiles) {
  EXPECT_EQ(Refusal([](auto& c) { c.tls_cert_file = "c.pem"; }),
            "--tls-key-file is missing: --tls-cert-file c.pem needs it");
  EXPECT_EQ(Refusal([](auto& c) { c.tls_key_file = "k.pem"; }),
            "--tls-cert-file is missing: --tls-key-file k.pem needs it");
}

TEST(RouterConfigTest, WorkersAreAddressesAndDiffer) {
  EXPECT_THAT(Refusal([](auto& c) { c.workers.clear(); }), testing::HasSubstr("--worker"));
  for (const char* address : {"", "host", "host:", ":1", "host:x", "host:0", "host:70000"}) {
    EXPECT_THAT(Refusal([&](auto& c) { c.workers = {address}; }), testing::HasSubstr("--worker"))
        << address;
  }
  EXPECT_THAT(Refusal([](auto& c) {
                c.workers = {"a:1", "a:1"};
              }),
              testing::HasSubstr("is there twice"));
}

}  // namespace
}  // namespace weightless::router
