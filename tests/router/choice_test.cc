#include "router/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/router/fake_dispatcher.h"

namespace weightless::router {
namespace {

const ServedModel& Model() {
  static const auto model = TinyModel();
  return *model;
}

struct Outcome {
  std::string text;  // all that was sent
  std::string finish_reason;
  int64_t num_tokens = 0;
};

// Feeds the ids until the choice ends, then the length.
Outcome Finish(const GenerationOptions& options, const std::vector<int32_t>& ids) {
  Choice choice(*Model().tokenizer, options);
  Outcome outcome;
  for (const int32_t id : ids) {
    outcome.text += choice.Push(id);
    if (choice.finished()) break;
  }
  if (!choice.finished()) outcome.text += choice.EndAtLength();
  outcome.finish_reason = choice.finish_reason();
  outcome.num_tokens = choice.num_tokens();
  return outcome;
}

TEST(ChoiceTest, SendsTextAndEndsAtItsLength) {
  const Outcome outcome = Finish({}, Ids(Model(), "some words"));
  EXPECT_EQ(outcome.text, "some words");
  EXPECT_EQ(outcome.finish_reason, "length");
}

TEST(ChoiceTest, AStopStringEndsItAndIsNotShown) {
  GenerationOptions options;
  options.stop = {" wor"};
  EXPECT_EQ(Finish(options, Ids(Model(), "some words")).text, "some");
  EXPECT_EQ(Finish(options, Ids(Model(), "some words")).finish_reason, "stop");
  options.include_stop_str_in_output = true;
  EXPECT_EQ(Finish(options, Ids(Model(), "some words")).text, "some wor");
}

TEST(ChoiceTest, StopStringsWaitForMinTokens) {
  GenerationOptions options;
  options.stop = {"a"};
  const std::vector<int32_t> ids(4, Ids(Model(), "a")[0]);
  EXPECT_EQ(Finish(options, ids).text, "");
  options.min_tokens = 2;
  EXPECT_EQ(Finish(options, ids).text, "aa");
  EXPECT_EQ(Finish(options, ids).num_tokens, 3);
}

TEST(ChoiceTest, StopTokensAreShownOnRequestOnly) {
  const int32_t end_of_turn = Model().tokenizer->FindToken("<end_of_turn>");
  const int32_t word = Ids(Model(), "word")[0];
  const auto text = [](const GenerationOptions& options, int32_t token) {
    return Choice(*Model().tokenizer, options).PushStopToken(token, /*is_eos=*/true);
  };
  GenerationOptions options;
  EXPECT_EQ(text(options, end_of_turn), "");
  EXPECT_EQ(text(options, word), "");
  options.include_stop_str_in_output = true;
  EXPECT_EQ(text(options, end_of_turn), "<end_of_turn>");
  EXPECT_EQ(text(options, word), Model().tokenizer->TokenBytes(word));
  options.skip_special_tokens = false;
  EXPECT_EQ(text(options, end_of_turn), "<end_of_turn>");
}

TEST(ChoiceTest, ReportsWhatStoppedIt) {
  const GenerationOptions options;
  Choice eos(*Model().tokenizer, options), asked(*Model().tokenizer, options);
  eos.PushStopToken(1, /*is_eos=*/true);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(eos.stop_reason()));
  asked.PushStopToken(7, /*is_eos=*/false);
  EXPECT_EQ(std::get<int32_t>(asked.stop_reason()), 7);
  GenerationOptions with_stop;
  with_stop.stop = {"x"};
  Choice text(*Model().tokenizer, with_stop);
  text.Push(Ids(Model(), "x")[0]);
  EXPECT_EQ(std::get<std::string>(text.stop_reason()), "x");
}

TEST(ChoiceTest, WhatCouldBecomeAStopIsHeldBackAndReleasedAtTheEnd) {
  GenerationOptions options;
  options.stop = {"word!"};
  Choice choice(*Model().tokenizer, options);
  std::string sent;
  for (const int32_t id : Ids(Model(), "my word")) sent += choice.Push(id);
  EXPECT_EQ(sent, "my ");
  EXPECT_EQ(choice.EndAtLength(), "word");
  EXPECT_EQ(choice.finish_reason(), "length");
}

// The definition, on the whole text: the earliest start wins, then the longest.
Outcome Expected(const std::string& text, const GenerationOptions& options) {
  size_t start = std::string::npos, length = 0;
  for (const std::string& stop : options.stop) {
    const size_t at = text.find(stop);
    if (at == std::string::npos || at > start || (at == start && stop.size() <= length)) continue;
    start = at;
    length = stop.size();
  }
  if (start == std::string::npos) return {text, "length", 0};
  return {text.substr(0, start + (options.include_stop_str_in_output ? length : 0)), "stop", 0};
}

TEST(ChoiceTest, ThousandRandomStopSetsCutTheTextWhereItsDefinitionSays) {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int trial = 0; trial < 1000; ++trial) {
    std::string text;
    const size_t num_characters = pick(40);
    for (size_t i = 0; i < num_characters; ++i) text += "ab \n\xc3\xa9"[pick(4)];
    GenerationOptions options;
    options.include_stop_str_in_output = pick(2) == 0;
    const size_t num_stops = 1 + pick(4);
    for (size_t i = 0; i < num_stops; ++i) {
      std::string stop;
      const size_t stop_len = 1 + pick(4);
      for (size_t j = 0; j < stop_len; ++j) stop += "ab \n"[pick(4)];
      options.stop.push_back(stop);
    }
    const Outcome got = Finish(options, Ids(Model(), text));
    const Outcome expected = Expected(text, options);
    EXPECT_EQ(got.text, expected.text) << text;
    EXPECT_EQ(got.finish_reason, expected.finish_reason) << text;
  }
}

TEST(ChoiceTest, CountsCharactersNotBytes) {
  EXPECT_EQ(NumCharacters("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 4u);
  const GenerationOptions options;
  Choice choice(*Model().tokenizer, options);
  for (const int32_t id : Ids(Model(), "\xc3\xa9t\xc3\xa9")) choice.Push(id);
  EXPECT_EQ(choice.num_characters(), 3u);
}

}  // namespace
}  // namespace weightless::router
