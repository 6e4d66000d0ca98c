#include "common/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <map>

#include "common/concat.h"

namespace weightless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Program {
  CLI::App app{"", "program"};
  int port = 8000;
  std::vector<std::string> workers;
  bool verbose = false;

  Program() {
    app.add_option("--port", port);
    app.add_option("--worker", workers);
    app.add_flag("--verbose", verbose);
  }
};

Environment Of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

// A file that goes with the test.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(Concat(testing::TempDir(), "flags_test_", getpid(), ".yaml")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(FlagsTest, NamesTheEnvironmentAfterTheFlag) {
  EXPECT_EQ(EnvironmentName("max-length"), "WEIGHTLESS_MAX_LENGTH");
}

TEST(FlagsTest, AFlagTwiceIsRefused) {
  const Program program;
  EXPECT_EQ(LayeredArguments(program.app, {"--port=1", "--port", "2"}, Of({})).status().message(),
            "--port is there twice, with \"1\" and \"2\"");
  EXPECT_TRUE(
      LayeredArguments(program.app, {"--worker=a", "--worker=b", "--verbose", "--verbose"}, Of({}))
          .ok());
}

TEST(FlagsTest, CommandLineGoesBeforeEnvironmentBeforeFile) {
  const Program program;
  const ConfigFile file("port: 1\nverbose: true\n");
  const std::string config = Concat("--config=", file.path());
  EXPECT_THAT(*LayeredArguments(program.app, {config}, Of({})),
              ElementsAre("--port=1", "--verbose=true", config));
  EXPECT_THAT(*LayeredArguments(program.app, {config}, Of({{"WEIGHTLESS_PORT", "2"}})),
              ElementsAre("--verbose=true", "--port=2", config));
  EXPECT_THAT(
      *LayeredArguments(program.app, {config, "--port", "3"}, Of({{"WEIGHTLESS_PORT", "2"}})),
      ElementsAre("--verbose=true", config, "--port", "3"));
}

TEST(FlagsTest, ListSetsAFlagOfSeveralValues) {
  const Program program;
  const ConfigFile file("worker: [a, b]\n");
  const std::string config = Concat("--config=", file.path());
  EXPECT_THAT(*LayeredArguments(program.app, {config}, Of({})),
              ElementsAre("--worker=a", "--worker=b", config));
}

TEST(FlagsTest, EmptyEnvironmentVariableIsUnset) {
  const Program program;
  EXPECT_THAT(*LayeredArguments(program.app, {}, Of({{"WEIGHTLESS_PORT", ""}})), ElementsAre());
}

TEST(FlagsTest, SomeValuesMustNotBeEmptyWhereverTheyComeFrom) {
  Program program;
  std::string key_file;
  RefuseEmpty(*program.app.add_option("--key-file", key_file));
  const ConfigFile file("key-file: ''\n");
  const std::string config = Concat("--config=", file.path());
  const auto refusal = [&](const std::vector<std::string>& arguments, const Environment& from) {
    return std::string(LayeredArguments(program.app, arguments, from).status().message());
  };
  const std::string empty =
      "--key-file (WEIGHTLESS_KEY_FILE) is empty: give a value or leave it out";
  EXPECT_EQ(refusal({"--key-file", ""}, Of({})), empty);
  EXPECT_EQ(refusal({"--key-file="}, Of({})), empty);
  EXPECT_EQ(refusal({config}, Of({})), empty);
  EXPECT_EQ(refusal({}, Of({{"WEIGHTLESS_KEY_FILE", ""}})), empty);
  EXPECT_EQ(refusal({"--key-file=x"}, Of({{"WEIGHTLESS_KEY_FILE", ""}})), "");
  EXPECT_EQ(refusal({}, Of({{"WEIGHTLESS_PORT", ""}})), "");
  EXPECT_EQ(refusal({config, "--key-file", "x"}, Of({})), "");
}

TEST(FlagsTest, RefusesAFileThatSaysWhatItCannot) {
  const Program program;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"prot: 1\n", ":1: key 'prot' is not a flag of program"},
      {"port: 1\nport: 2\n", "key 'port' is there twice"},
      {"port: [1, 2]\n", "key 'port' takes one value"},
      {"port: {a: 1}\n", "key 'port' is neither a value nor a list"},
      {"config: x\n", "key 'config' is not a flag"},
      {"help: true\n", "key 'help' is not a flag"},
      {"- port\n", "not a map"},
      {"port: [\n", "yaml"},
  };
  for (const auto& [text, message] : cases) {
    const ConfigFile file(text);
    const auto arguments =
        LayeredArguments(program.app, {Concat("--config=", file.path())}, Of({}));
    ASSERT_FALSE(arguments.ok()) << text;
    EXPECT_EQ(arguments.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(arguments.status().message()), HasSubstr(message)) << text;
  }
}

TEST(FlagsTest, NamesAMissingFile) {
  const Program program;
  const auto arguments = LayeredArguments(program.app, {"--config", "/nowhere.yaml"}, Of({}));
  EXPECT_EQ(arguments.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(arguments.status().message()), HasSubstr("/nowhere.yaml"));
}

TEST(FlagsTest, NamesAFolderThatIsNoFile) {
  const Program program;
  const auto arguments = LayeredArguments(program.app, {"--config", "/tmp"}, Of({}));
  EXPECT_THAT(std::string(arguments.status().message()), HasSubstr("/tmp"));
}

TEST(FlagsTest, ParsesIntoTheBoundVariables) {
  Program program;
  const ConfigFile file("worker: [a, b]\nverbose: true\n");
  const std::string config = Concat("--config=", file.path());
  const std::vector<const char*> argv = {"program", config.c_str(), "--port=9"};
  EXPECT_EQ(ParseFlags(program.app, static_cast<int>(argv.size()), argv.data()), std::nullopt);
  EXPECT_EQ(program.port, 9);
  EXPECT_TRUE(program.verbose);
  EXPECT_THAT(program.workers, ElementsAre("a", "b"));
}

TEST(FlagsTest, UnknownFlagIsAUsageError) {
  Program program;
  const std::vector<const char*> argv = {"program", "--prot=9"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseFlags(program.app, static_cast<int>(argv.size()), argv.data()), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--prot"));
}

}  // namespace
}  // namespace weightless
