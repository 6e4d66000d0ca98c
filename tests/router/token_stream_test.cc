#include "router/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightless::router {
namespace {

std::vector<int32_t> Ids(const TokenBatch& batch) {
  std::vector<int32_t> ids;
  for (const TokenEvent& event : batch.tokens) ids.push_back(event.token);
  return ids;
}

TEST(TokenStreamTest, WakesOnceUntilTaken) {
  int wakes = 0;
  TokenStream stream([&] { ++wakes; });
  stream.PutToken(1, absl::UnixEpoch());
  stream.PutToken(2, absl::UnixEpoch());
  EXPECT_EQ(wakes, 1);
  EXPECT_THAT(Ids(stream.Take()), testing::ElementsAre(1, 2));
  stream.PutToken(3, absl::UnixEpoch());
  EXPECT_EQ(wakes, 2);
}

TEST(TokenStreamTest, MergesWhatArrivedBetweenTakes) {
  TokenStream stream([] {});
  TokenBatch first;
  first.tokens.push_back({.token = 7, .logprobs = proto::Logprobs()});
  first.num_cached_tokens = 64;
  first.prompt_logprobs.resize(3);
  stream.Put(std::move(first));
  stream.PutToken(8, absl::UnixEpoch());
  TokenBatch last;
  last.tokens.push_back({.token = 9, .logprobs = std::nullopt});
  last.end = EndReason::kError;
  last.status = absl::UnavailableError("gone");
  stream.Put(std::move(last));

  const TokenBatch batch = stream.Take();
  EXPECT_THAT(Ids(batch), testing::ElementsAre(7, 8, 9));
  EXPECT_TRUE(batch.tokens[0].logprobs.has_value());
  EXPECT_EQ(batch.num_cached_tokens, 64);
  EXPECT_EQ(batch.prompt_logprobs.size(), 3u);
  EXPECT_EQ(batch.end, EndReason::kError);
  EXPECT_EQ(batch.status.message(), "gone");
}

TEST(TokenStreamTest, TakeOfNothingIsEmpty) {
  TokenStream stream([] {});
  EXPECT_TRUE(stream.Take().tokens.empty());
  EXPECT_FALSE(stream.Take().end.has_value());
}

TEST(TokenStreamTest, DropsWhatComesAfterClose) {
  int wakes = 0;
  TokenStream stream([&] { ++wakes; });
  stream.Close();
  stream.PutToken(1, absl::UnixEpoch());
  EXPECT_TRUE(stream.closed());
  EXPECT_EQ(wakes, 0);
  EXPECT_TRUE(stream.Take().tokens.empty());
}

}  // namespace
}  // namespace weightless::router
