// What needs no certificates; tests/integration/grpc_tls_test.py has the rest.
#include "common/grpc_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace weightless {
namespace {

using ::testing::HasSubstr;

TEST(GrpcTlsTest, WithoutFilesThereIsNone) {
  const auto tls = GrpcTls::Load({});
  ASSERT_TRUE(tls.ok()) << tls.status();
  EXPECT_TRUE(*tls == nullptr);
  EXPECT_TRUE(ChannelCredentials(nullptr) != nullptr);
}

TEST(GrpcTlsTest, AllFilesOrNone) {
  EXPECT_TRUE(CheckComplete({}).ok());
  EXPECT_TRUE(CheckComplete({.cert = "a", .key = "b", .ca = "c"}).ok());
  const auto message = [](const GrpcTlsFiles& files) {
    return std::string(CheckComplete(files).message());
  };
  EXPECT_THAT(message({.cert = {}, .key = "b", .ca = "c"}),
              HasSubstr("--grpc-tls-cert-file is missing"));
  EXPECT_THAT(message({.cert = "a", .key = {}, .ca = "c"}),
              HasSubstr("--grpc-tls-key-file is missing"));
  EXPECT_THAT(message({.cert = "a", .key = "b", .ca = {}}),
              HasSubstr("--grpc-tls-ca-file is missing"));
}

TEST(GrpcTlsTest, NamesTheFileThatCannotBeRead) {
  const auto tls = GrpcTls::Load({.cert = "/no/such.pem", .key = "b", .ca = "c"});
  EXPECT_EQ(tls.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tls.status().message()),
              HasSubstr("--grpc-tls-cert-file /no/such.pem: cannot be read"));
}

TEST(GrpcTlsTest, NamesTheFlags) {
  CLI::App app;
  GrpcTlsFiles files;
  AddGrpcTlsFlags(app, files);
  app.parse("--grpc-tls-cert-file a --grpc-tls-key-file b --grpc-tls-ca-file c");
  EXPECT_EQ(files.cert + files.key + files.ca, "abc");
}

}  // namespace
}  // namespace weightless
