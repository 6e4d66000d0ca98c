// Answers under way: events, keep-alive comments, clients that leave or do not read, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/concat.h"
#include "tests/router/http_client.h"
#include "tests/router/test_certificate.h"

namespace weightless::router {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kStream[] = R"({"prompt":"a","max_tokens":9,"stream":true})";
constexpr char kChatStream[] = R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,)"
                               R"("stream_options":{"include_usage":true}})";

// In the clear, and over TLS.
class HttpStreamTest : public testing::TestWithParam<bool> {
 protected:
  RouterConfig Config() const {
    RouterConfig config;
    if (!GetParam()) return config;
    config.tls_cert_file = certificate_.certificate_file();
    config.tls_key_file = certificate_.key_file();
    return config;
  }

 private:
  const TestCertificate certificate_;
};

INSTANTIATE_TEST_SUITE_P(Transport, HttpStreamTest, testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Tls" : "Plain");
});

TEST_P(HttpStreamTest, ChatEventsAreExact) {
  TestServer server(Config());
  server.dispatcher.AnswerWith([&](const SequenceRequest&, TokenStream& stream) {
    TokenBatch batch = Tokens(Ids(*server.dispatcher.model(), "a \"b\"\n"));
    batch.num_cached_tokens = 2;
    stream.Put(std::move(batch));
    stream.Put(Tokens({15}, EndReason::kStop));
  });
  HttpClient client(server);
  const ClientResponse response = client.Post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
  const std::string head =
      R"({"object":"chat.completion.chunk","created":1700000000,"model":"tiny",)"
      R"("system_fingerprint":"fp_0123456789","choices":[)";
  const auto delta = [&](const std::string& content) {
    return head + R"({"index":0,"delta":)" + content +
           R"(,"logprobs":null,"finish_reason":null}],"usage":null})";
  };
  const auto events = Events(response.body);
  ASSERT_GE(events.size(), 6u);
  EXPECT_EQ(events[0], delta(R"({"role":"assistant","content":""})"));
  std::string text;
  for (size_t i = 1; i + 3 < events.size(); ++i) {
    const std::string content = events[i].substr(events[i].find("\"content\":") + 10);
    EXPECT_EQ(events[i], delta("{\"content\":" + content.substr(0, content.find('}') + 1)));
    text += content.substr(1, content.find('}') - 2);
  }
  EXPECT_EQ(text, R"(a \"b\"\n)");
  const size_t end = events.size() - 3;
  EXPECT_EQ(events[end], head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                                R"("stop_reason":null}],"usage":null})");
  const size_t num_prompt = server.dispatcher.WaitForSequences(1)[0].prompt.size();
  const size_t num_output = Ids(*server.dispatcher.model(), "a \"b\"\n").size() + 1;
  EXPECT_EQ(events[end + 1],
            Concat(head, R"(],"usage":{"prompt_tokens":)", num_prompt, R"(,"completion_tokens":)",
                   num_output, R"(,"total_tokens":)", num_prompt + num_output,
                   R"(,"prompt_tokens_details":{"cached_tokens":2}}})"));
  EXPECT_EQ(events[end + 2], "[DONE]");
}

TEST_P(HttpStreamTest, CompletionEventsAreExact) {
  TestServer server(Config());
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  const std::string head = R"({"object":"text_completion","created":1700000000,"model":"tiny",)"
                           R"("system_fingerprint":"fp_0123456789","choices":[{"index":0,"text":)";
  EXPECT_THAT(Events(client.Post("/v1/completions", kStream).body),
              ElementsAre(head + R"("b","logprobs":null,"finish_reason":null}]})",
                          head + R"("","logprobs":null,"finish_reason":"length",)"
                                 R"("stop_reason":null}]})",
                          "[DONE]"));
}

TEST_P(HttpStreamTest, SendsEachTokenWhenItComes) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/completions", kStream));
  server.dispatcher.WaitForSequences(1);
  for (const char* word : {"one", "two", "three"}) {
    server.dispatcher.stream(0)->Put(Tokens(Ids(*server.dispatcher.model(), word)));
    EXPECT_THAT(client.ReceiveUntil("\n\n"), HasSubstr("text"));
  }
  server.dispatcher.stream(0)->Put(Tokens({}, EndReason::kLength));
  EXPECT_THAT(client.ReceiveUntil("[DONE]\n\n\r\n0\r\n\r\n"), HasSubstr("length"));
  EXPECT_EQ(client.Get("/health").status, 200);  // the connection lives on
}

TEST_P(HttpStreamTest, Http10StreamEndsWithTheConnection) {
  TestServer server(Config());
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  client.Send(Concat("POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: ",
                     std::string_view(kStream).size(), "\r\n\r\n", kStream));
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
}

TEST_P(HttpStreamTest, InterleavedChoicesKeepTheirTexts) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/completions",
                       R"({"prompt":["a","b"],"n":2,"max_tokens":9,"stream":true,"seed":7})"));
  const auto sequences = server.dispatcher.WaitForSequences(4);
  EXPECT_EQ(sequences[0].sampling.seed(), 7);
  EXPECT_EQ(sequences[1].sampling.seed(), 8);
  EXPECT_EQ(sequences[2].sampling.seed(), 7);
  const ServedModel& model = *server.dispatcher.model();
  for (const size_t i : {2, 0, 3, 1}) server.dispatcher.stream(i)->Put(Tokens(Ids(model, "x")));
  for (const size_t i : {1, 3, 2, 0}) {
    server.dispatcher.stream(i)->Put(Tokens(Ids(model, std::to_string(i)), EndReason::kLength));
  }
  std::map<std::string, std::string> texts;
  for (const std::string& event : Events(client.Receive().body)) {
    const size_t index = event.find("\"index\":");
    if (index == std::string::npos) continue;
    texts[event.substr(index + 8, 1)] += Member(event, "text");
  }
  EXPECT_THAT(texts, ElementsAre(testing::Pair("0", "x0"), testing::Pair("1", "x1"),
                                 testing::Pair("2", "x2"), testing::Pair("3", "x3")));
}

TEST_P(HttpStreamTest, SaysItIsAliveInLongSilence) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/chat/completions", kChatStream));
  server.dispatcher.WaitForSequences(1);
  client.PassTimeUntilReadable(server);
  EXPECT_THAT(client.ReceiveUntil(": keep-alive\n\n"), HasSubstr("\"role\":\"assistant\""));
  client.PassTimeUntilReadable(server);
  client.ReceiveUntil(": keep-alive\n\n");
  server.dispatcher.stream(0)->Put(Tokens({15}, EndReason::kStop));
  EXPECT_THAT(client.ReceiveUntil("[DONE]"), HasSubstr("\"finish_reason\":\"stop\""));
}

TEST_P(HttpStreamTest, ClosesTheStreamsOfAClientThatLeaves) {
  for (const bool hard : {false, true}) {
    for (const char* body : {kStream, R"({"prompt":"a"})"}) {
      TestServer server(Config());
      HttpClient client(server);
      client.Send(PostText("/v1/completions", body));
      server.dispatcher.WaitForSequences(1);
      server.dispatcher.stream(0)->Put(Tokens(Ids(*server.dispatcher.model(), "x")));
      client.Leave(hard);
      EXPECT_TRUE(server.dispatcher.WaitForClosed());
      EXPECT_TRUE(server.dispatcher.stream(0)->closed());
      EXPECT_TRUE(server.server.WaitUntilIdle(absl::Now() + absl::Seconds(20)));
      EXPECT_EQ(server.metrics.requests_aborted.value(), 1);
      EXPECT_EQ(server.metrics.requests_running.value(), 0);
    }
  }
}

TEST_P(HttpStreamTest, CutsOffAClientThatDoesNotRead) {
  RouterConfig config = Config();
  config.http.send_buffer_bytes = 4096;
  TestServer server(config);
  HttpClient client(server, /*receive_buffer_bytes=*/4096);
  client.Send(PostText("/v1/completions", R"({"prompt":"a","max_tokens":900,"stream":true})"));
  server.dispatcher.WaitForSequences(1);
  const auto words = Tokens(std::vector<int32_t>(800, Ids(*server.dispatcher.model(), "x")[0]));
  server.dispatcher.stream(0)->Put(words);
  while (!server.server.WaitUntilIdle(absl::Now() + absl::Milliseconds(2))) {
    server.clock.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(server.dispatcher.stream(0)->closed());
  EXPECT_EQ(server.metrics.requests_aborted.value(), 1);
}

TEST_P(HttpStreamTest, ASlowReaderGetsEverything) {
  RouterConfig config = Config();
  config.http.send_buffer_bytes = 4096;
  TestServer server(config);
  HttpClient client(server, /*receive_buffer_bytes=*/4096);
  client.Send(PostText("/v1/completions", R"({"prompt":"a","max_tokens":900,"stream":true})"));
  server.dispatcher.WaitForSequences(1);
  const int32_t id = Ids(*server.dispatcher.model(), "x")[0];
  for (int i = 0; i < 9; ++i) {
    server.dispatcher.stream(0)->Put(Tokens(std::vector<int32_t>(100, id)));
  }
  server.dispatcher.stream(0)->Put(Tokens({}, EndReason::kLength));
  EXPECT_EQ(Events(client.Receive().body).size(), 902u);
}

TEST_P(HttpStreamTest, AFailureBeforeTheFirstTokenIsAnHttpError) {
  TestServer server(Config());
  server.dispatcher.AnswerWith([](const SequenceRequest&, TokenStream& stream) {
    TokenBatch batch;
    batch.end = EndReason::kError;
    batch.status = absl::UnavailableError("no worker is left");
    stream.Put(std::move(batch));
  });
  HttpClient client(server);
  const ClientResponse response = client.Post("/v1/completions", kStream);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Member(response.body, "message"), "no worker is left");
  EXPECT_EQ(server.metrics.requests_error.value(), 1);
}

TEST_P(HttpStreamTest, AFailureInAStreamIsAnEventBeforeDone) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/completions", kStream));
  server.dispatcher.WaitForSequences(1);
  TokenBatch batch = Tokens(Ids(*server.dispatcher.model(), "x"));
  server.dispatcher.stream(0)->Put(batch);
  client.ReceiveUntil("\"text\":\"x\"");
  batch.end = EndReason::kError;
  batch.status = absl::DeadlineExceededError("the request took too long");
  server.dispatcher.stream(0)->Put(batch);
  const std::string rest = client.ReceiveUntil("\r\n0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("\"text\":\"x\""));
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":{\"message\":\"the request took too long\","
                              "\"type\":\"server_error\",\"param\":null,"
                              "\"code\":\"deadline_exceeded\"}}\n\ndata: [DONE]\n\n"));
}

TEST_P(HttpStreamTest, AFailureAfterASignOfLifeIsAnEventToo) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/completions", kStream));
  server.dispatcher.WaitForSequences(1);
  client.PassTimeUntilReadable(server);
  client.ReceiveUntil(": keep-alive\n\n");
  TokenBatch batch;
  batch.end = EndReason::kError;
  batch.status = absl::UnavailableError("no worker is left");
  server.dispatcher.stream(0)->Put(std::move(batch));
  EXPECT_THAT(client.ReceiveUntil("[DONE]"),
              HasSubstr("data: {\"error\":{\"message\":\"no worker"));
}

TEST_P(HttpStreamTest, AFailedChoiceEndsTheOthers) {
  TestServer server(Config());
  HttpClient client(server);
  client.Send(PostText("/v1/completions", R"({"prompt":"a","n":2})"));
  server.dispatcher.WaitForSequences(2);
  TokenBatch batch;
  batch.end = EndReason::kError;
  batch.status = absl::InternalError("secret detail");
  server.dispatcher.stream(1)->Put(std::move(batch));
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, testing::Not(HasSubstr("secret")));
  EXPECT_TRUE(server.dispatcher.stream(0)->closed());
}

TEST_P(HttpStreamTest, RunningAnswersEndInADrainAndNewOnesAreRefused) {
  TestServer server(Config());
  HttpClient running(server), late(server);
  running.Send(PostText("/v1/completions", kStream));
  server.dispatcher.WaitForSequences(1);
  server.routes.BeginDrain();
  server.server.BeginDrain();
  const ClientResponse refused = late.Post("/v1/completions", kStream);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_FALSE(server.server.WaitUntilIdle(absl::Now()));
  server.dispatcher.stream(0)->Put(Tokens({1}, EndReason::kStop));
  EXPECT_THAT(running.Receive().body, HasSubstr("[DONE]"));
  EXPECT_TRUE(server.server.WaitUntilIdle(absl::Now() + absl::Seconds(20)));
}

}  // namespace
}  // namespace weightless::router
