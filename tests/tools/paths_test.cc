#include "tools/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/concat.h"

namespace weightless::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_(Concat(testing::TempDir(), "paths_test_", getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

void Touch(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "{}";
}

TEST(PathsTest, FindsTheBuiltInModelOfTheSourceTree) {
  const auto model = FindModel(kBuiltInModel, "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(fs::exists(fs::path(*model) / "config.json"));
}

TEST(PathsTest, TakesAPathAsItIs) {
  const Folder folder;
  Touch(folder.path() / "model" / "config.json");
  EXPECT_EQ(*FindModel(folder.path() / "model", ""), folder.path() / "model");
}

TEST(PathsTest, LooksForANameInTheModelFolder) {
  const Folder folder;
  Touch(folder.path() / "mine" / "config.json");
  EXPECT_EQ(*FindModel("mine", folder.path()), folder.path() / "mine");
}

TEST(PathsTest, TakesTheOnlyGgufFileOfAFolder) {
  const Folder folder;
  Touch(folder.path() / "mine" / "a.gguf");
  EXPECT_EQ(*FindModel("mine", folder.path()), folder.path() / "mine" / "a.gguf");
  Touch(folder.path() / "mine" / "b.gguf");
  EXPECT_EQ(*FindModel("mine", folder.path()), folder.path() / "mine");
}

TEST(PathsTest, SaysWhereItLooked) {
  const Folder folder;
  const absl::Status status = FindModel("absent", folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr((folder.path() / "absent").string()));
}

}  // namespace
}  // namespace weightless::tools
