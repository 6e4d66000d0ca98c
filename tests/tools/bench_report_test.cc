#include "tools/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace weightless::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

BenchReport Report() {
  BenchReport report;
  report.model = "m";
  report.rows.resize(2);
  report.rows[0].phase = "prefill";
  report.rows[0].context = 512;
  report.rows[0].step_s = 0.5;
  report.rows[0].tokens_per_s = 1024;
  report.rows[1].phase = "decode";
  report.rows[1].batch = 8;
  report.rows[1].step_s = 0.01;
  report.rows[1].tokens_per_s = 800;
  report.rows[1].step_bytes = 100'000'000;
  report.rows[1].read_rate = 20e9;
  return report;
}

TEST(BenchReportTest, TableShowsTheShareOfTheReadRate) {
  const std::string table = FormatTable(Report());
  EXPECT_THAT(table, HasSubstr("1024.0"));
  EXPECT_THAT(table, HasSubstr("100.0     10.0       20.0    50 %"));
}

TEST(BenchReportTest, TableNamesModelNumericsDeviceAndRepeats) {
  BenchReport report = Report();
  report.numerics = "n";
  report.device = "d, 2 threads";
  report.threads = 2;
  report.repeats = 5;
  EXPECT_THAT(FormatTable(report), StartsWith("m, n on d, 2 threads, median of 5\n"));
}

TEST(BenchReportTest, JsonHoldsTheSameNumbers) {
  const boost::json::value json = boost::json::parse(FormatJson(Report()));
  EXPECT_EQ(json.at("rows").at(0).at("tokens_per_second").to_number<double>(), 1024);
  EXPECT_EQ(json.at("rows").at(1).at("fraction_of_read_rate").to_number<double>(), 0.5);
  EXPECT_FALSE(json.at("rows").at(0).as_object().contains("step_bytes"));
}

}  // namespace
}  // namespace weightless::tools
