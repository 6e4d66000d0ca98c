#include "router/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "router/api_error.h"

namespace weightless::router {
namespace {

std::string Float(float value) {
  std::string out;
  AppendJsonFloat(out, value);
  return out;
}

TEST(JsonWriterTest, EscapesWhatMustBeAndNothingElse) {
  EXPECT_EQ(JsonString("plain caf\xc3\xa9 </x>"), "\"plain caf\xc3\xa9 </x>\"");
  EXPECT_EQ(JsonString("\"\\/\b\f\n\r\t"), R"("\"\\/\u0008\u000c\n\r\t")");
  EXPECT_EQ(JsonString(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
  EXPECT_EQ(JsonString(""), "\"\"");
}

TEST(JsonWriterTest, WritesTheShortestFloatThatReadsBack) {
  EXPECT_EQ(Float(-0.1f), "-0.1");
  EXPECT_EQ(Float(0), "0");
  EXPECT_EQ(Float(-1.5e-9f), "-1.5e-09");
  EXPECT_EQ(Float(-std::numeric_limits<float>::infinity()), "-9999");
  EXPECT_EQ(std::abs(std::stof(Float(std::nanf("")))), 9999);
}

TEST(ApiErrorTest, StatusCodesHaveTheirHttpStatusAndSlug) {
  const auto verdict = [](const absl::Status& status) {
    const ApiError error = ToApiError(status);
    return std::to_string(error.http_status) + " " + error.code;
  };
  EXPECT_EQ(verdict(absl::InvalidArgumentError("x")), "400 invalid_value");
  EXPECT_EQ(verdict(absl::UnauthenticatedError("x")), "401 invalid_api_key");
  EXPECT_EQ(verdict(absl::NotFoundError("x")), "404 not_found");
  EXPECT_EQ(verdict(absl::ResourceExhaustedError("x")), "503 overloaded");
  EXPECT_EQ(verdict(absl::UnavailableError("x")), "503 overloaded");
  EXPECT_EQ(verdict(absl::DeadlineExceededError("x")), "504 deadline_exceeded");
  EXPECT_EQ(verdict(absl::InternalError("x")), "500 internal_error");
  EXPECT_EQ(verdict(ErrorWithCode(absl::StatusCode::kResourceExhausted, "rate_limit_exceeded", "")),
            "429 rate_limit_exceeded");
  EXPECT_EQ(verdict(FieldError("n", "out_of_range", "")), "400 out_of_range");
}

TEST(ApiErrorTest, BodiesHaveTheShapeClientsRead) {
  EXPECT_EQ(ErrorResponse(FieldError("stop[1]", "out_of_range", "a \"b\"")).body,
            R"({"error":{"message":"a \"b\"","type":"invalid_request_error",)"
            R"("param":"stop[1]","code":"out_of_range"}})");
  EXPECT_EQ(ErrorResponse(absl::UnavailableError("no worker")).body,
            R"({"error":{"message":"no worker","type":"server_error",)"
            R"("param":null,"code":"overloaded"}})");
}

TEST(ApiErrorTest, TheFirstFieldNamedStays) {
  EXPECT_EQ(ToApiError(WithParam(FieldError("n", "x", ""), "messages")).param, "n");
  EXPECT_EQ(ToApiError(WithParam(absl::InvalidArgumentError(""), "messages")).param, "messages");
  EXPECT_TRUE(WithParam(absl::OkStatus(), "n").ok());
}

}  // namespace
}  // namespace weightless::router
