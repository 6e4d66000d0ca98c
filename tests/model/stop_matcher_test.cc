#include "model/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace weightless::model {
namespace {

struct Outcome {
  std::string text;
  std::string matched;

  bool operator==(const Outcome&) const = default;
};

// The decision rule on the whole text: earliest start, then longest.
Outcome Decide(std::string_view text, const std::vector<std::string>& stops, bool include_stop) {
  for (size_t start = 0; start < text.size(); ++start) {
    std::string longest;
    for (const std::string& stop : stops) {
      if (text.substr(start).starts_with(stop) && stop.size() > longest.size()) longest = stop;
    }
    if (longest.empty()) continue;
    return {std::string(text.substr(0, start)) + (include_stop ? longest : ""), longest};
  }
  return {std::string(text), ""};
}

TEST(StopMatcherTest, PassesEverythingWithoutStops) {
  StopMatcher matcher({}, false);
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, HoldsBackExactlyWhatMayBecomeAStop) {
  StopMatcher matcher({"END"}, false);
  EXPECT_EQ(matcher.Push("the EN"), "the ");
  EXPECT_EQ(matcher.Push("E"), "EN");
  EXPECT_EQ(matcher.Push("x"), "Ex");
  EXPECT_EQ(matcher.Push(" ENEN"), " EN");
  EXPECT_EQ(matcher.Push("D and more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "END");
  EXPECT_EQ(matcher.Push("later"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, WaitsForALongerStopWithTheSameStart) {
  StopMatcher longer({"ab", "abcd"}, true);
  EXPECT_EQ(longer.Push("xab"), "x");
  EXPECT_FALSE(longer.stopped());
  EXPECT_EQ(longer.Push("cd"), "abcd");
  EXPECT_EQ(longer.matched(), "abcd");

  StopMatcher shorter({"ab", "abcd"}, true);
  EXPECT_EQ(shorter.Push("xabc"), "x");
  EXPECT_EQ(shorter.Push("x"), "ab");
  EXPECT_EQ(shorter.matched(), "ab");

  StopMatcher at_the_end({"ab", "abcd"}, false);
  EXPECT_EQ(at_the_end.Push("xabc"), "x");
  EXPECT_EQ(at_the_end.Finish(), "");
  EXPECT_EQ(at_the_end.matched(), "ab");
}

TEST(StopMatcherTest, WaitsForAStopThatStartsEarlier) {
  StopMatcher matcher({"abcd", "bc"}, false);
  EXPECT_EQ(matcher.Push("abc"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("x"), "a");
  EXPECT_EQ(matcher.matched(), "bc");
}

std::string RandomText(std::mt19937& random, size_t num_letters, size_t length) {
  std::string text;
  while (text.size() < length) text += static_cast<char>('a' + random() % num_letters);
  return text;
}

// The longest prefix of `seen` that is sent whatever follows: a stop string that has begun may be
// completed, no other future takes anything back.
size_t SafeLength(const std::string& seen, const std::vector<std::string>& stops) {
  size_t safe = Decide(seen, stops, false).text.size();
  for (const std::string& stop : stops) {
    for (size_t overlap = 1; overlap < stop.size() && overlap <= seen.size(); ++overlap) {
      if (!seen.ends_with(stop.substr(0, overlap))) continue;
      const Outcome grown = Decide(seen + stop.substr(overlap), stops, false);
      safe = std::min(safe, grown.text.size());
    }
  }
  return safe;
}

TEST(StopMatcherTest, RandomStopsInRandomCutsDecideAsOnTheWholeText) {
  std::mt19937 random(3);
  for (int round = 0; round < 100'000; ++round) {
    const size_t num_letters = 1 + random() % 3;
    std::vector<std::string> stops(random() % 5);
    for (std::string& stop : stops) stop = RandomText(random, num_letters, 1 + random() % 5);
    const std::string text = RandomText(random, num_letters, random() % 16);
    const bool include_stop = random() % 2 == 0;
    const Outcome expected = Decide(text, stops, include_stop);

    StopMatcher matcher(stops, include_stop);
    std::string sent;
    for (size_t i = 0; i < text.size();) {
      const size_t length = 1 + random() % 4;
      sent += matcher.Push(std::string_view(text).substr(i, length));
      i = std::min(i + length, text.size());
      if (matcher.stopped()) break;
      ASSERT_EQ(sent.size(), SafeLength(text.substr(0, i), stops)) << text;
    }
    sent += matcher.Finish();
    ASSERT_EQ((Outcome{sent, matcher.matched()}), expected) << text;
  }
}

}  // namespace
}  // namespace weightless::model
