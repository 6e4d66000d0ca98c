#include "router/auth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace weightless::router {
namespace {

using testing::HasSubstr;

std::string Message(const absl::StatusOr<ApiKeys>& keys) {
  return std::string(keys.status().message());
}

TEST(ApiKeysTest, NamesCallersByTheirKeys) {
  const auto keys = ApiKeys::Parse("# people\n alice : sk-a \n\nsk-b\r\n", "keys.txt");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->Authenticate("Bearer sk-a"), "alice");
  EXPECT_EQ(*keys->Authenticate("bearer  sk-b "), "key4");
}

TEST(ApiKeysTest, RefusesEverythingElse) {
  const auto keys = ApiKeys::Parse("sk-a", "keys.txt");
  for (const char* header : {"", "sk-a", "Bearer", "Bearer ", "Bearer sk", "Bearer sk-ab",
                             "Basic sk-a", "Bearersk-a", "Bearer sk-a sk-a"}) {
    const auto name = keys->Authenticate(header);
    EXPECT_EQ(name.status().code(), absl::StatusCode::kUnauthenticated) << header;
    EXPECT_THAT(std::string(name.status().message()), testing::Not(HasSubstr("sk-a"))) << header;
  }
}

TEST(ApiKeysTest, AFileMayHoldDigestsInsteadOfKeys) {
  // printf %s sk-a | sha256sum
  const std::string digest = "a4a6d307ad00fa67176e1099fdbc4f4a09bb527a7f24718a5030f2f173d11f7f";
  const auto keys = ApiKeys::Parse("alice:sha256:" + digest + "\nbob:sk-b\n", "keys.txt");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->Authenticate("Bearer sk-a"), "alice");
  EXPECT_EQ(*keys->Authenticate("Bearer sk-b"), "bob");
  EXPECT_FALSE(keys->Authenticate("Bearer " + digest).ok());
  EXPECT_FALSE(keys->Authenticate("Bearer sha256:" + digest).ok());
  EXPECT_EQ(Message(ApiKeys::Parse("a:sk-a\nb:sha256:" + digest, "k")),
            "k line 2: the same key as in an earlier line");
  EXPECT_EQ(Message(ApiKeys::Parse("sha256:" + digest, "k")),
            "k line 1: a digest needs a name before it: name:sha256:HEX");
  for (const std::string& broken : {std::string("ab"), digest.substr(1) + "g", digest + "0"}) {
    EXPECT_EQ(Message(ApiKeys::Parse("a:sha256:" + broken, "k")),
              "k line 1: sha256: is not followed by 64 hexadecimal digits");
  }
}

TEST(ApiKeysTest, WithoutKeysEverybodyIsWelcome) {
  EXPECT_EQ(*ApiKeys().Authenticate(""), "");
  EXPECT_EQ(*ApiKeys().Authenticate("Bearer anything"), "");
}

TEST(ApiKeysTest, NamesTheLineOfABadFile) {
  EXPECT_EQ(Message(ApiKeys::Parse("a:1\nb:1\n", "k")),
            "k line 2: the same key as in an earlier line");
  EXPECT_EQ(Message(ApiKeys::Parse("a:1\na:2\n", "k")), "k line 2: the name \"a\" is there twice");
  EXPECT_EQ(Message(ApiKeys::Parse("a:\n", "k")), "k line 1: expected name:key or a key");
  EXPECT_EQ(Message(ApiKeys::Parse(":1\n", "k")), "k line 1: expected name:key or a key");
  EXPECT_EQ(Message(ApiKeys::Parse("a b\n", "k")),
            "k line 1: a key holds printable ASCII without blanks only");
  EXPECT_EQ(Message(ApiKeys::Parse("# nothing\n", "k")), "k holds no key");
  EXPECT_EQ(Message(ApiKeys::Parse("", "k")), "k holds no key");
}

TEST(ApiKeysTest, LoadsAFileAndNamesOneThatIsNotThere) {
  const auto path = std::filesystem::path(testing::TempDir()) / "weightless_keys";
  std::ofstream(path) << "a:1\n";
  EXPECT_TRUE(ApiKeys::Load(path).ok());
  std::ofstream(path) << "";
  EXPECT_THAT(Message(ApiKeys::Load(path)), HasSubstr("holds no key"));
  std::ofstream(path) << std::string(2 << 20, 'k');
  EXPECT_THAT(Message(ApiKeys::Load(path)), HasSubstr("is larger than 1048576 bytes"));
  EXPECT_THAT(Message(ApiKeys::Load("/dev/zero")), HasSubstr("is larger than"));
  EXPECT_THAT(Message(ApiKeys::Load(testing::TempDir())), HasSubstr("cannot be read"));
  std::filesystem::remove(path);
  EXPECT_THAT(Message(ApiKeys::Load(path)), HasSubstr(path.string()));
}

}  // namespace
}  // namespace weightless::router
