// Whole answers: what goes to the engine, and what comes back as JSON.
#include "router/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/concat.h"
#include "tests/router/http_client.h"

namespace weightless::router {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What the engine would say about `token`: it and one alternative.
proto::Logprobs Log(int32_t token, float logprob, int32_t other, float other_logprob) {
  proto::Logprobs logprobs;
  logprobs.set_token(token);
  logprobs.set_logprob(logprob);
  logprobs.set_rank(logprob > other_logprob ? 1 : 2);
  for (const auto& [id, value] : {std::pair(token, logprob), std::pair(other, other_logprob)}) {
    logprobs.add_top_tokens(id);
    logprobs.add_top_logprobs(value);
  }
  return logprobs;
}

struct Words {
  explicit Words(const ServedModel& model)
      : a(Ids(model, "a").at(0)),
        b(Ids(model, "b").at(0)),
        high(model.tokenizer->FindToken("<0xC3>")) {}
  int32_t a, b, high;
};

// Says "a", then the first byte of a character, then nothing more.
void AnswerWithLogprobs(FakeDispatcher& dispatcher) {
  const Words words(*dispatcher.model());
  dispatcher.AnswerWith([words](const SequenceRequest& sequence, TokenStream& stream) {
    TokenBatch batch;
    batch.tokens.push_back({.token = words.a, .logprobs = Log(words.a, -0.5f, words.b, -1)});
    batch.tokens.push_back({.token = words.high, .logprobs = Log(words.high, -2, words.b, -0.25f)});
    for (size_t i = 1; i < sequence.prompt.size(); ++i) {
      batch.prompt_logprobs.push_back(Log(sequence.prompt[i], -3, words.a, -4));
    }
    batch.end = EndReason::kLength;
    stream.Put(std::move(batch));
  });
}

// The middle of a list of token ids.
std::string SameIds(int count) {
  std::string ids = "5";
  for (int i = 1; i < count; ++i) ids += ",5";
  return ids;
}

std::string Between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find(from);
  if (begin == std::string::npos) return "(absent)";
  return text.substr(begin, text.find(to, begin) + to.size() - begin);
}

TEST(GenerationTest, ChatLogprobsHaveBytesAndAlternatives) {
  TestServer server;
  AnswerWithLogprobs(server.dispatcher);
  HttpClient client(server);
  const std::string body =
      client
          .Post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":2})")
          .body;
  EXPECT_THAT(body, HasSubstr("\"content\":\"a\xEF\xBF\xBD\",\"refusal\":null}"));
  EXPECT_EQ(
      Between(body, "\"logprobs\":", "\"refusal\":null},"),
      R"("logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
      R"({"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1,"bytes":[98]}]},)"
      R"({"token":"bytes:\\xc3","logprob":-2,"bytes":[195],"top_logprobs":[)"
      R"({"token":"bytes:\\xc3","logprob":-2,"bytes":[195]},)"
      R"({"token":"b","logprob":-0.25,"bytes":[98]}]}],"refusal":null},)");
}

TEST(GenerationTest, CompletionLogprobsHaveColumns) {
  TestServer server;
  AnswerWithLogprobs(server.dispatcher);
  HttpClient client(server);
  const std::string body =
      client.Post("/v1/completions", R"({"prompt":"x","logprobs":2,"max_tokens":2})").body;
  EXPECT_EQ(Between(body, "\"logprobs\":", "}]}"),
            R"("logprobs":{"text_offset":[0,1],"tokens":["a","bytes:\\xc3"],)"
            R"("token_logprobs":[-0.5,-2],)"
            R"("top_logprobs":[{"a":-0.5,"b":-1},{"bytes:\\xc3":-2,"b":-0.25}]})");
}

TEST(GenerationTest, EchoScoresThePromptToo) {
  TestServer server;
  AnswerWithLogprobs(server.dispatcher);
  HttpClient client(server);
  const char* request = R"({"prompt":"bb","logprobs":1,"echo":true,"max_tokens":2,"stream":%s})";
  char json[200];
  std::snprintf(json, sizeof(json), request, "false");
  const std::string body = client.Post("/v1/completions", json).body;
  const auto sequence = server.dispatcher.WaitForSequences(1)[0];
  EXPECT_EQ(sequence.prompt_logprobs, 1u);
  EXPECT_THAT(body, HasSubstr("\"text\":\"bba\xEF\xBF\xBD\""));
  EXPECT_THAT(body, HasSubstr("\"tokens\":[\"<bos>\",\"b"));
  EXPECT_THAT(body, HasSubstr("\"token_logprobs\":[null,-3,"));
  EXPECT_THAT(body, HasSubstr("\"top_logprobs\":[null,{"));
  EXPECT_THAT(body, HasSubstr(",2,3],\"tokens\""));  // after the two characters of the prompt
  std::snprintf(json, sizeof(json), request, "true");
  const auto events = Events(client.Post("/v1/completions", json).body);
  EXPECT_THAT(events.at(0), HasSubstr("\"text\":\"bb\",\"logprobs\":{\"text_offset\":[0,0"));
}

TEST(GenerationTest, ScoringAloneShowsNoOutput) {
  TestServer server;
  AnswerWithLogprobs(server.dispatcher);
  HttpClient client(server);
  const std::string body =
      client.Post("/v1/completions", R"({"prompt":"bb","echo":true,"max_tokens":0})").body;
  EXPECT_EQ(server.dispatcher.WaitForSequences(1)[0].max_tokens, 1);
  EXPECT_THAT(body, HasSubstr(R"("text":"bb","logprobs":null,"finish_reason":"length")"));
  EXPECT_THAT(body, HasSubstr(R"("completion_tokens":0)"));
}

TEST(GenerationTest, PromptLogprobsAndTokenIdsOnRequest) {
  TestServer server;
  AnswerWithLogprobs(server.dispatcher);
  HttpClient client(server);
  const Words words(*server.dispatcher.model());
  const std::string body =
      client
          .Post("/v1/completions",
                Concat(R"({"prompt":[)", words.b, ",", words.b,
                       R"(],"prompt_logprobs":1,"return_token_ids":true,"max_tokens":2})"))
          .body;
  EXPECT_THAT(body, HasSubstr(Concat("\"prompt_token_ids\":[", words.b, ",", words.b,
                                     "],\"token_ids\":[", words.a, ",", words.high, "]")));
  EXPECT_THAT(body, HasSubstr(Concat("\"prompt_logprobs\":[null,{\"", words.b,
                                     R"(":{"logprob":-3,"rank":1,"decoded_token":"b"},")", words.a,
                                     R"(":{"logprob":-4,"rank":2,"decoded_token":"a"}}])")));
}

TEST(GenerationTest, AStopStringClosesTheStreamAndCountsItsTokens) {
  TestServer server;
  const Words words(*server.dispatcher.model());
  HttpClient client(server);
  client.Send(PostText("/v1/completions", R"({"prompt":"x","stop":"b","max_tokens":9})"));
  server.dispatcher.WaitForSequences(1);
  server.dispatcher.stream(0)->Put(Tokens({words.a, words.b, words.a, words.a}));
  const std::string body = client.Receive().body;
  EXPECT_THAT(body, HasSubstr(R"("text":"a","logprobs":null,"finish_reason":"stop",)"
                              R"("stop_reason":"b")"));
  EXPECT_THAT(body, HasSubstr(R"("completion_tokens":2)"));
  EXPECT_TRUE(server.dispatcher.stream(0)->closed());
  EXPECT_TRUE(server.dispatcher.WaitForClosed());
}

TEST(GenerationTest, TheEngineGetsWhatWasAsked) {
  TestServer server;
  server.dispatcher.AnswerWithText("a");
  HttpClient client(server);
  client.Post("/v1/completions",
              R"({"prompt":"<bos>x","temperature":0.5,"top_k":-1,"top_p":0.5,"min_p":0.25,)"
              R"("repetition_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1,"seed":5,)"
              R"("logit_bias":{"7":2},"stop_token_ids":[9],"min_tokens":3,"priority":-2,)"
              R"("cache_salt":"s","max_tokens":30})");
  client.Post("/v1/completions", R"({"prompt":"x","ignore_eos":true})");
  client.Post("/v1/completions", R"({"prompt":"x","top_p":1e-300,"repetition_penalty":1e-300})");
  const auto sequences = server.dispatcher.WaitForSequences(3);
  const proto::Sampling& asked = sequences[0].sampling;
  EXPECT_EQ(asked.temperature(), 0.5f);
  EXPECT_EQ(asked.top_k(), 0u);
  EXPECT_EQ(asked.top_p(), 0.5f);
  EXPECT_EQ(asked.min_p(), 0.25f);
  EXPECT_EQ(asked.repetition_penalty(), 1.5f);
  EXPECT_EQ(asked.presence_penalty(), 1);
  EXPECT_EQ(asked.frequency_penalty(), -1);
  EXPECT_EQ(asked.seed(), 5);
  EXPECT_EQ(asked.logit_bias(0).token(), 7);
  EXPECT_THAT(asked.stop_token_ids(), ElementsAre(9, 1, 15));
  EXPECT_EQ(asked.min_tokens(), 3u);
  EXPECT_EQ(sequences[0].priority, -2);
  EXPECT_EQ(sequences[0].cache_salt, "s");
  EXPECT_EQ(sequences[0].max_tokens, 30);
  EXPECT_EQ(sequences[0].prompt, sequences[1].prompt);      // one BOS either way
  const proto::Sampling& defaults = sequences[1].sampling;  // of generation_config.json
  EXPECT_EQ(defaults.temperature(), 1);
  EXPECT_EQ(defaults.top_k(), 64u);
  EXPECT_EQ(defaults.top_p(), 0.95f);
  EXPECT_TRUE(defaults.stop_token_ids().empty());
  EXPECT_EQ(sequences[1].max_tokens, 16);
  EXPECT_GT(sequences[2].sampling.top_p(), 0);  // 0 would mean 1
  EXPECT_GT(sequences[2].sampling.repetition_penalty(), 0);
  client.Post("/v1/completions", R"({"prompt":"x","max_tokens":9,"max_completion_tokens":7})");
  EXPECT_EQ(server.dispatcher.WaitForSequences(4)[3].max_tokens, 7);
}

TEST(GenerationTest, LengthsMustFitTheKvBlocks) {
  TestServer server;
  server.dispatcher.AnswerWithText("a");
  server.dispatcher.SetLengthLimit({.num_tokens = 129, .cause = LengthLimit::Cause::kKvBlocks});
  HttpClient client(server);
  client.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}]})");
  const SequenceRequest whole = server.dispatcher.WaitForSequences(1)[0];
  EXPECT_EQ(static_cast<int>(whole.prompt.size()) + whole.max_tokens, 129);
  const std::string asks_too_much =
      client.Post("/v1/completions", R"({"prompt":[5,6],"max_tokens":128})").body;
  EXPECT_EQ(Member(asks_too_much, "param"), "max_tokens");
  EXPECT_EQ(Member(asks_too_much, "message"),
            "the prompt has 2 tokens and max_tokens is 128; together they exceed the workers' KV "
            "blocks for 129 tokens");
  const std::string chat =
      R"({"messages":[{"role":"user","content":")" + std::string(900, 'x') + "\"}]}";
  EXPECT_EQ(Member(client.Post("/v1/chat/completions", chat).body, "param"), "messages");
  EXPECT_THAT(client.Get("/v1/models/tiny").body, HasSubstr("\"max_model_len\":129"));
}

// What nobody asked for does not wait for a larger worker that is away.
TEST(GenerationTest, LengthsNobodyNamedAreThoseOfTheWorkersThatAreReady) {
  TestServer server;
  server.dispatcher.AnswerWithText("a");
  server.dispatcher.SetLengthLimit({.num_tokens = 129, .num_ready_tokens = 40});
  HttpClient client(server);
  client.Post("/v1/completions", Concat(R"({"prompt":[)", SameIds(38), "]}"));
  client.Post("/v1/completions", Concat(R"({"prompt":[)", SameIds(40), "]}"));
  client.Post("/v1/completions", Concat(R"({"prompt":[)", SameIds(38), R"(],"max_tokens":90})"));
  client.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}]})");
  const std::vector<SequenceRequest> sequences = server.dispatcher.WaitForSequences(4);
  EXPECT_EQ(sequences[0].max_tokens, 2);
  EXPECT_EQ(sequences[1].max_tokens, 16);  // only the absent one has room for the prompt
  EXPECT_EQ(sequences[2].max_tokens, 90);
  EXPECT_EQ(static_cast<int>(sequences[3].prompt.size()) + sequences[3].max_tokens, 40);
}

// What only the engine can tell, too.
TEST(GenerationTest, AnErrorAboutThePromptNamesItsField) {
  TestServer server;
  server.dispatcher.RefuseSequences(absl::InvalidArgumentError("prompt token 262144 at ..."));
  HttpClient client(server);
  const std::string body = client.Post("/v1/completions", R"({"prompt":"a"})").body;
  EXPECT_EQ(Member(body, "param"), "prompt");
}

TEST(GenerationTest, LengthsMustFitTheContext) {
  TestServer server;
  server.dispatcher.AnswerWithText("a");
  HttpClient client(server);
  const auto code = [&](std::string_view json) {
    const std::string body = client.Post("/v1/completions", json).body;
    return Concat(Member(body, "code"), ": ", Member(body, "message"));
  };
  const std::string ids = SameIds(1023);
  EXPECT_EQ(
      code(Concat("{\"prompt\":[", ids, "],\"max_tokens\":2}")),
      "context_length_exceeded: the prompt has 1023 tokens and max_tokens is 2; together they "
      "exceed the context of 1024 tokens");
  EXPECT_EQ(code(Concat("{\"prompt\":[", ids, ",5]}")),
            "context_length_exceeded: the prompt has 1024 tokens, which leaves no room in the "
            "context of 1024 tokens");
  const std::string words(9000, 'x');
  const std::string chat = R"({"messages":[{"role":"user","content":")" + words + "\"}]}";
  EXPECT_EQ(Member(client.Post("/v1/chat/completions", chat).body, "param"), "messages");
  EXPECT_EQ(code(R"({"prompt":"a","min_tokens":17})"),
            "out_of_range: min_tokens 17 exceeds max_tokens 16");
  const std::string by_new_name =
      client.Post("/v1/completions", R"({"prompt":[5,6],"max_completion_tokens":1023})").body;
  EXPECT_EQ(Member(by_new_name, "param"), "max_completion_tokens");
  EXPECT_EQ(Member(by_new_name, "message"),
            "the prompt has 2 tokens and max_completion_tokens is 1023; together they exceed the "
            "context of 1024 tokens");
  client.Post("/v1/completions", Concat("{\"prompt\":[", ids, "]}"));
  client.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}]})");
  const auto sequences = server.dispatcher.WaitForSequences(2);
  EXPECT_EQ(sequences[0].max_tokens, 1);  // what is left
  EXPECT_EQ(sequences[1].max_tokens, 1024 - static_cast<int>(sequences[1].prompt.size()));
}

TEST(GenerationTest, ManyLongChoicesAreRefused) {
  TestServer server;
  server.dispatcher.SetModel(TinyModel(1 << 20));
  HttpClient client(server);
  const std::string ids = SameIds(40000);
  const std::string body =
      client.Post("/v1/completions", Concat("{\"n\":128,\"prompt\":[", ids, "]}")).body;
  EXPECT_THAT(body, HasSubstr("5120000 prompt tokens together"));
}

TEST(GenerationTest, ManyLogprobsOfPromptsAreRefused) {
  TestServer server;
  server.dispatcher.SetModel(TinyModel(1 << 20));
  server.dispatcher.AnswerWithText("a");
  HttpClient client(server);
  const std::string ids = SameIds(40000);
  const auto refusal = [&](std::string_view fields) {
    const std::string body =
        client.Post("/v1/completions", Concat("{\"prompt\":[", ids, "],", fields, "}")).body;
    return Concat(Member(body, "param"), ": ", Member(body, "message"));
  };
  EXPECT_EQ(refusal(R"("n":5,"prompt_logprobs":20)"),
            "prompt_logprobs: prompt_logprobs 20 asks for 4200000 log-probabilities of the 200000 "
            "prompt tokens of all choices, more than 4194304");
  const char* echo =
      "logprobs: logprobs 20 asks for 4200000 log-probabilities of the 200000 prompt tokens of all "
      "choices, more than 4194304";
  EXPECT_EQ(refusal(R"("n":5,"logprobs":20,"echo":true)"), echo);
  EXPECT_EQ(refusal(R"("n":5,"logprobs":20,"echo":true,"stream":true)"), echo);
  EXPECT_EQ(server.dispatcher.num_submitted(), 0u);
  const std::string accepted = Concat(R"({"n":5,"prompt_logprobs":19,"prompt":[)", ids, "]}");
  EXPECT_EQ(client.Post("/v1/completions", accepted).status, 200);
}

// Streamed or not: who reads a stream slowly leaves them in memory.
TEST(GenerationTest, ManyLogprobsOfAnAnswerAreRefused) {
  TestServer server;
  server.dispatcher.SetModel(TinyModel(1 << 20));
  server.dispatcher.AnswerWithText("a");
  HttpClient client(server);
  const auto completion = [&](std::string_view fields) {
    return client.Post("/v1/completions", Concat(R"({"prompt":"x","n":64,)", fields, "}"));
  };
  const std::string refused = completion(R"("logprobs":1,"max_tokens":32769)").body;
  EXPECT_EQ(Member(refused, "param"), "logprobs");
  EXPECT_EQ(Member(refused, "message"),
            "logprobs 1 asks for 4194432 log-probabilities of the 2097216 output tokens of all "
            "choices, more than 4194304");
  EXPECT_EQ(completion(R"("logprobs":1,"max_tokens":32768)").status, 200);
  EXPECT_EQ(completion(R"("logprobs":1,"max_tokens":32769,"stream":true)").status, 400);
  EXPECT_EQ(completion(R"("max_tokens":32769)").status, 200);
  const auto chat = [&](std::string_view fields) {
    return client.Post("/v1/chat/completions",
                       Concat(R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,)",
                              R"("top_logprobs":20,"n":2)", fields, "}"));
  };
  const ClientResponse refused_chat = chat(R"(,"max_tokens":99865)");
  EXPECT_EQ(refused_chat.status, 400);
  EXPECT_EQ(Member(refused_chat.body, "param"), "top_logprobs");
  const size_t num_before = server.dispatcher.num_submitted();
  EXPECT_EQ(chat("").status, 200);  // who names no length gets what there may be
  EXPECT_EQ(server.dispatcher.WaitForSequences(num_before + 1).back().max_tokens, 99864);
}

TEST(GenerationTest, TemplatesRulesAreA400AboutMessages) {
  TestServer server;
  HttpClient client(server);
  for (const char* messages :
       {R"([{"role":"system","content":"a"}])", R"([{"role":"assistant","content":"a"}])",
        R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])"}) {
    const ClientResponse response =
        client.Post("/v1/chat/completions", Concat("{\"messages\":", messages, "}"));
    EXPECT_EQ(response.status, 400) << messages;
    EXPECT_EQ(Member(response.body, "param"), "messages") << messages;
  }
}

}  // namespace
}  // namespace weightless::router
