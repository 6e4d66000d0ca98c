// loadtest [flags]
#include <cstdio>
#include <fstream>
#include <string>

#include "common/file_limit.h"
#include "loadtest/flags.h"
#include "loadtest/measurement.h"
#include "loadtest/report.h"
#include "loadtest/text_file.h"

namespace {

using weightless::loadtest::Config;
using weightless::loadtest::Session;

int Fail(const std::string& message, int code) {
  std::fprintf(stderr, "loadtest: %s\n", message.c_str());
  return code;
}

// A run is not spent on reports that cannot be written.
bool CanWrite(const std::string& path) {
  return path.empty() || std::ofstream(path, std::ios::app).good();
}

bool WriteReports(const Session& session) {
  using namespace weightless::loadtest;  // NOLINT(google-build-using-namespace): the three reports
  const Config& config = session.config;
  bool is_written = true;
  const auto write = [&](const std::string& path, std::string (*make)(const Session&)) {
    if (path.empty()) return;
    const absl::Status status = WriteTextFile(path, make(session));
    if (status.ok()) return;
    Fail(std::string(status.message()), 1);
    is_written = false;
  };
  write(config.json_file, JsonReport);
  write(config.csv_file, CsvReport);
  write(config.html_file, HtmlReport);
  return is_written;
}

}  // namespace

int main(int argc, char** argv) {
  Config config;
  if (const auto code = weightless::loadtest::ReadFlags(argc, argv, config)) return *code;
  const absl::Status fits = config.ValidateFileLimit(weightless::RaiseFileLimit());
  if (!fits.ok()) return Fail(std::string(fits.message()), 2);
  for (const std::string& path : {config.json_file, config.csv_file, config.html_file}) {
    if (!CanWrite(path)) return Fail("cannot write " + path, 2);
  }
  const auto session = weightless::loadtest::Measure(config);
  if (!session.ok()) {
    const bool is_usage = session.status().code() == absl::StatusCode::kInvalidArgument ||
                          session.status().code() == absl::StatusCode::kNotFound;
    return Fail(std::string(session.status().message()), is_usage ? 2 : 1);
  }
  std::fputs(weightless::loadtest::TableReport(*session).c_str(), stdout);
  if (!WriteReports(*session)) return 1;
  return weightless::loadtest::ExitCode(*session);
}
