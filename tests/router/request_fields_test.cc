// Every field of the request bodies: types, ranges, what is refused, what is ignored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "common/concat.h"
#include "router/api_error.h"
#include "router/openai_api.h"

namespace weightless::router {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr RequestLimits kLimits = {.vocab_size = 1000, .max_sequences = 64};

std::string ChatBody(std::string_view fields) {
  return Concat(R"({"messages":[{"role":"user","content":"Hi"}])", fields.empty() ? "" : ",",
                fields, "}");
}
std::string CompletionBody(std::string_view fields) {
  return Concat(R"({"prompt":"Hi")", fields.empty() ? "" : ",", fields, "}");
}

// "code param" of the refusal, or "ok".
template <typename Request>
std::string Verdict(const absl::StatusOr<Request>& request) {
  if (request.ok()) return "ok";
  const ApiError error = ToApiError(request.status());
  EXPECT_EQ(error.http_status, 400) << error.message;
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_FALSE(error.message.empty());
  return Concat(error.code, " ", error.param);
}
std::string Chat(std::string_view fields) {
  return Verdict(ParseChatRequest(ChatBody(fields), kLimits));
}
std::string Completion(std::string_view fields) {
  return Verdict(ParseCompletionRequest(CompletionBody(fields), kLimits));
}

struct FieldCase {
  std::string name;
  std::vector<std::string> good;
  std::vector<std::string> wrong_type;
  std::vector<std::string> out_of_range;
};

// The fields of both kinds, with JSON values at and beyond their bounds.
const std::vector<FieldCase>& SharedFields() {
  static const std::vector<FieldCase> cases = {
      {"temperature", {"0", "2", "0.7", "2.0"}, {"\"1\"", "true", "[1]", "{}"}, {"-0.01", "2.01"}},
      {"top_p", {"1", "0.001"}, {"\"1\"", "false"}, {"0", "1.01", "-1"}},
      {"top_k", {"-1", "0", "1", "64", "64.0"}, {"\"5\"", "1.5", "true"}, {"-2", "1e12"}},
      {"min_p", {"0", "1"}, {"\"0\""}, {"-0.1", "1.1"}},
      {"repetition_penalty", {"0.1", "1", "2"}, {"\"1\""}, {"0", "2.1"}},
      {"presence_penalty", {"-2", "2"}, {"\"1\""}, {"-2.1", "2.1"}},
      {"frequency_penalty", {"-2", "2"}, {"[]"}, {"-2.1", "2.1"}},
      {"seed", {"0", "-1", "9223372036854775807"}, {"\"1\"", "0.5"}, {"9223372036854775808"}},
      {"n", {"1", "3", "3.0"}, {"\"1\"", "1.5"}, {"0", "129", "-1"}},
      {"min_tokens", {"0", "5"}, {"\"1\""}, {"-1"}},
      {"priority", {"0", "-5"}, {"\"1\""}, {"99999999999"}},
      {"stream", {"true", "false"}, {"\"true\"", "1", "0"}, {}},
      {"ignore_eos", {"true"}, {"1", "\"x\""}, {}},
      {"include_stop_str_in_output", {"true"}, {"1"}, {}},
      {"skip_special_tokens", {"false"}, {"0"}, {}},
      {"return_token_ids", {"true"}, {"1"}, {}},
      {"add_special_tokens", {"true"}, {"1"}, {}},
      {"prompt_logprobs", {"0", "20"}, {"true", "\"1\""}, {"-1", "21"}},
      {"user", {"\"u\""}, {"1", "{}"}, {}},
      {"cache_salt", {"\"s\""}, {"1"}, {}},
      {"model", {"\"m\""}, {"1", "[]"}, {}},
      {"stop", {"\"a\"", "[]", "[\"a\",\"b\"]"}, {"1", "{}"}, {"\"\""}},
      {"stop_token_ids", {"[]", "[0,999,7.0]"}, {"1", "\"1\""}, {}},
      {"logit_bias", {"{}", "{\"5\":-100,\"6\":100}"}, {"[]", "1"}, {"{\"x\":1}", "{\"1000\":1}"}},
      {"best_of", {"1"}, {"\"1\""}, {"0"}},
  };
  return cases;
}

void CheckField(const FieldCase& field, std::string (*verdict)(std::string_view)) {
  const auto with = [&](const std::string& value) {
    return verdict(Concat("\"", field.name, "\":", value));
  };
  EXPECT_EQ(with("null"), "ok") << field.name;
  for (const auto& value : field.good) EXPECT_EQ(with(value), "ok") << field.name << value;
  for (const auto& value : field.wrong_type) {
    EXPECT_EQ(with(value), "invalid_type " + field.name) << value;
  }
  for (const auto& value : field.out_of_range) {
    EXPECT_EQ(with(value), "out_of_range " + field.name) << value;
  }
}

TEST(RequestFieldsTest, SharedFieldsAreStrict) {
  for (const FieldCase& field : SharedFields()) {
    CheckField(field, &Chat);
    CheckField(field, &Completion);
  }
}

TEST(RequestFieldsTest, FieldsOfChatsAreStrict) {
  CheckField({"max_tokens", {"1", "5.0"}, {"\"5\"", "1.5", "true"}, {"0", "-1", "1e10"}}, &Chat);
  CheckField({"max_completion_tokens", {"1"}, {"\"5\""}, {"0"}}, &Chat);
  CheckField({"logprobs", {"true", "false"}, {"1", "\"true\""}, {}}, &Chat);
  CheckField({"add_generation_prompt", {"true", "false"}, {"1"}, {}}, &Chat);
  CheckField({"continue_final_message", {"true", "false"}, {"1"}, {}}, &Chat);
  CheckField({"chat_template_kwargs", {"{}", "{\"a\":1}"}, {"1", "[]"}, {}}, &Chat);
  EXPECT_EQ(Chat(R"("logprobs":true,"top_logprobs":20)"), "ok");
  EXPECT_EQ(Chat(R"("logprobs":true,"top_logprobs":21)"), "out_of_range top_logprobs");
  EXPECT_EQ(Chat(R"("logprobs":true,"top_logprobs":"1")"), "invalid_type top_logprobs");
  EXPECT_EQ(Chat(R"("top_logprobs":1)"), "invalid_value top_logprobs");
  EXPECT_EQ(Chat(R"("continue_final_message":true,"add_generation_prompt":true)"),
            "invalid_value continue_final_message");
}

TEST(RequestFieldsTest, FieldsOfCompletionsAreStrict) {
  CheckField({"max_tokens", {"1"}, {"\"5\"", "1.5"}, {"0", "-1"}}, &Completion);
  CheckField({"max_completion_tokens", {"1"}, {"\"5\""}, {"0"}}, &Completion);
  CheckField({"logprobs", {"0", "20"}, {"true", "\"1\""}, {"-1", "21"}}, &Completion);
  CheckField({"echo", {"true"}, {"1"}, {}}, &Completion);
  EXPECT_EQ(Completion(R"("echo":true,"max_tokens":0)"), "ok");
}

TEST(RequestFieldsTest, ElementsAreNamed) {
  EXPECT_EQ(Chat(R"("stop":["a",1])"), "invalid_type stop[1]");
  EXPECT_EQ(Chat(R"("stop":["a",""])"), "out_of_range stop[1]");
  EXPECT_EQ(Chat(R"("stop_token_ids":[1,"2"])"), "invalid_type stop_token_ids[1]");
  EXPECT_EQ(Chat(R"("stop_token_ids":[1000])"), "out_of_range stop_token_ids[0]");
  EXPECT_EQ(Chat(R"("logit_bias":{"5":"x"})"), "invalid_type logit_bias.5");
  EXPECT_EQ(Chat(R"("logit_bias":{"5":101})"), "out_of_range logit_bias.5");
  EXPECT_EQ(Chat(R"("stream":true,"stream_options":{"include_usage":1})"),
            "invalid_type stream_options.include_usage");
  EXPECT_EQ(Chat(R"("stream_options":{"include_usage":true})"), "invalid_value stream_options");
}

TEST(RequestFieldsTest, ListsAreBounded) {
  const std::vector<std::string> stops(65, "\"a\"");
  EXPECT_EQ(Chat(Concat("\"stop\":[", absl::StrJoin(stops, ","), "]")), "out_of_range stop");
  EXPECT_EQ(Chat(Concat("\"stop\":\"", std::string(1025, 'a'), "\"")), "out_of_range stop");
  const std::vector<int> ids(1001, 1);
  EXPECT_EQ(Chat(Concat("\"stop_token_ids\":[", absl::StrJoin(ids, ","), "]")),
            "out_of_range stop_token_ids");
  EXPECT_EQ(Chat(R"("n":65)"), "out_of_range n");  // max_sequences
  EXPECT_EQ(Completion(R"("n":65)"), "out_of_range n");
  EXPECT_EQ(Verdict(ParseCompletionRequest(R"({"prompt":["a","b"],"n":33})", kLimits)),
            "out_of_range prompt");
}

TEST(RequestFieldsTest, WhatIsNotSupportedIsSaid) {
  for (const char* field :
       {R"("tools":[{"type":"function"}])", R"("tool_choice":"auto")", R"("functions":[{}])",
        R"("function_call":"auto")", R"("response_format":{"type":"json_object"})",
        R"("guided_json":{"a":1})", R"("use_beam_search":true)", R"("best_of":2)",
        R"("structured_outputs":{"regex":"a"})", R"("suffix":"x")"}) {
    const std::string name = Concat(field).substr(1, Concat(field).find(':') - 2);
    EXPECT_EQ(Chat(field), "unsupported_field " + name);
    EXPECT_EQ(Completion(field), "unsupported_field " + name);
  }
  for (const char* field :
       {R"("tools":[])", R"("tools":null)", R"("tool_choice":"none")", R"("suffix":"")",
        R"("response_format":{"type":"text"})", R"("best_of":1)", R"("use_beam_search":false)"}) {
    EXPECT_EQ(Chat(field), "ok") << field;
  }
  EXPECT_EQ(Chat(R"("response_format":{})"), "missing_field response_format.type");
  EXPECT_EQ(Chat(R"("modalities":["text","audio"])"), "unsupported_field modalities");
  EXPECT_EQ(Chat(R"("stream":true,"prompt_logprobs":1)"), "unsupported_field prompt_logprobs");
  EXPECT_EQ(Chat(R"("n":2,"best_of":1)"), "out_of_range best_of");
}

TEST(RequestFieldsTest, UnknownFieldsAreCountedAndInertOnesAreNot) {
  const auto count = [](std::string_view fields) {
    return ParseChatRequest(ChatBody(fields), kLimits)->options.num_unknown_fields;
  };
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count(R"("store":true,"metadata":{"a":"b"},"service_tier":"auto")"), 0);
  EXPECT_EQ(count(R"("odd":1,"stream":true,"stream_options":{"strange":2})"), 2);
  EXPECT_EQ(count(R"("response_format":{"type":"text","odd":1})"), 1);
  const auto chat = ParseChatRequest(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","odd":1}],"odd":2},)"
      R"({"role":"assistant","content":"b","name":"c","refusal":null}]})",
      kLimits);
  EXPECT_EQ(chat->options.num_unknown_fields, 2);
  EXPECT_EQ(ParseTokenizeRequest(R"({"prompt":"a","odd":1})")->num_unknown_fields, 1);
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens":[],"odd":1})", kLimits)->num_unknown_fields, 1);
}

TEST(RequestFieldsTest, NumbersJustOutOfRangeAreShownInFull) {
  const auto body = R"({"messages":[{"role":"user","content":"a"}],"temperature":2.0000001})";
  EXPECT_EQ(ParseChatRequest(body, kLimits).status().message(),
            "temperature 2.0000001 is not in [0, 2]");
}

TEST(RequestFieldsTest, BodiesMustBeSoundJsonObjects) {
  const auto chat = [](std::string_view body) { return Verdict(ParseChatRequest(body, kLimits)); };
  EXPECT_EQ(chat(""), "invalid_json ");
  EXPECT_EQ(chat("{"), "invalid_json ");
  EXPECT_EQ(chat("{} x"), "invalid_json ");
  EXPECT_EQ(chat("[]"), "invalid_type ");
  EXPECT_EQ(chat("\"text\""), "invalid_type ");
  EXPECT_EQ(chat("{\"a\":\"\xff\"}"), "invalid_json ");
  EXPECT_EQ(chat("{\"a\":\"\\ud800\"}"), "invalid_json ");
  EXPECT_EQ(chat(std::string(100000, '[')), "invalid_json ");
  EXPECT_EQ(chat(R"({"n":1,"n":2})"), "invalid_json ");
  const auto twice = ParseChatRequest(R"({"messages":1,"messages":2})", kLimits);
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("messages"));
  const std::string key(100000, 'k');
  const auto long_key = ParseChatRequest(Concat("{\"", key, "\":1,\"", key, "\":2}"), kLimits);
  EXPECT_LT(long_key.status().message().size(), 200U);
}

TEST(RequestFieldsTest, MessagesAreChecked) {
  const auto chat = [](std::string_view messages) {
    return Verdict(ParseChatRequest(Concat("{\"messages\":", messages, "}"), kLimits));
  };
  EXPECT_EQ(chat("null"), "missing_field messages");
  EXPECT_EQ(chat("[]"), "missing_field messages");
  EXPECT_EQ(chat("{}"), "invalid_type messages");
  EXPECT_EQ(chat("[1]"), "invalid_type messages[0]");
  EXPECT_EQ(chat(R"([{"content":"a"}])"), "missing_field messages[0].role");
  EXPECT_EQ(chat(R"([{"role":1,"content":"a"}])"), "invalid_type messages[0].role");
  EXPECT_EQ(chat(R"([{"role":"king","content":"a"}])"), "invalid_value messages[0].role");
  EXPECT_EQ(chat(R"([{"role":"tool","content":"a"}])"), "unsupported_field messages[0].role");
  EXPECT_EQ(chat(R"([{"role":"user"}])"), "missing_field messages[0].content");
  EXPECT_EQ(chat(R"([{"role":"user","content":1}])"), "invalid_type messages[0].content");
  EXPECT_EQ(chat(R"([{"role":"user","content":"a","name":1}])"), "invalid_type messages[0].name");
  EXPECT_EQ(chat(R"([{"role":"assistant","content":"a","tool_calls":[{}]}])"),
            "unsupported_field messages[0].tool_calls");
  EXPECT_EQ(chat(R"([{"role":"user","content":[{"type":"text","text":"a"},"b"]}])"),
            "invalid_type messages[0].content[1]");
  EXPECT_EQ(chat(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "unsupported_field messages[0].content[0].type");
  EXPECT_EQ(chat(R"([{"role":"user","content":[{"text":"a"}]}])"),
            "missing_field messages[0].content[0].type");
  EXPECT_EQ(chat(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "missing_field messages[0].content[0].text");
}

TEST(RequestFieldsTest, MessagesKeepTheirParts) {
  const auto request = ParseChatRequest(
      R"({"messages":[{"role":"system","content":"s"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})",
      kLimits);
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->messages.size(), 2u);
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_FALSE(request->messages[0].is_list);
  EXPECT_THAT(request->messages[1].parts, ElementsAre("a", "b"));
  EXPECT_TRUE(request->messages[1].is_list);
}

TEST(RequestFieldsTest, PromptsComeInFourShapes) {
  const auto prompts = [](std::string_view prompt) {
    return ParseCompletionRequest(Concat("{\"prompt\":", prompt, "}"), kLimits);
  };
  EXPECT_THAT(prompts("\"a\"")->prompts, ElementsAre(PromptInput("a")));
  EXPECT_THAT(prompts(R"(["a","b"])")->prompts, ElementsAre(PromptInput("a"), PromptInput("b")));
  EXPECT_THAT(prompts("[1,2]")->prompts, ElementsAre(PromptInput(std::vector<int32_t>{1, 2})));
  EXPECT_THAT(
      prompts("[[1],[2,3]]")->prompts,
      ElementsAre(PromptInput(std::vector<int32_t>{1}), PromptInput(std::vector<int32_t>{2, 3})));
  EXPECT_EQ(Verdict(prompts("null")), "missing_field prompt");
  EXPECT_EQ(Verdict(prompts("[]")), "out_of_range prompt");
  EXPECT_EQ(Verdict(prompts("[[]]")), "out_of_range prompt[0]");
  EXPECT_EQ(Verdict(prompts("5")), "invalid_type prompt");
  EXPECT_EQ(Verdict(prompts("[1,\"a\"]")), "invalid_type prompt[1]");
  EXPECT_EQ(Verdict(prompts("[\"a\",1]")), "invalid_type prompt[1]");
  EXPECT_EQ(Verdict(prompts("[1000]")), "out_of_range prompt[0]");
  EXPECT_EQ(Verdict(prompts("[[1,-1]]")), "out_of_range prompt[0][1]");
}

TEST(RequestFieldsTest, SamplingDefaultsAreReadFieldByField) {
  const auto defaults = ParseSamplingDefaults(
      R"({"do_sample":true,"top_k":64,"top_p":0.95,"temperature":"hot","min_p":7})", "g.json");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->top_k, 64);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->temperature, 1);
  EXPECT_EQ(defaults->min_p, 0);
  EXPECT_THAT(std::string(ParseSamplingDefaults("[", "g.json").status().message()),
              HasSubstr("g.json"));
}

}  // namespace
}  // namespace weightless::router
