// Who may call which route, and what the simple ones answer.
#include "router/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/concat.h"
#include "tests/router/http_client.h"

namespace weightless::router {
namespace {

using testing::HasSubstr;

constexpr char kChat[] = R"({"messages":[{"role":"user","content":"Hi"}]})";

TEST(RoutesTest, ReportsWhatIsThere) {
  TestServer server;
  HttpClient client(server);
  EXPECT_EQ(client.Get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(client.Get("/ready").body, R"({"status":"ready"})");
  EXPECT_THAT(client.Get("/version").body, HasSubstr("\"version\":\"0."));
  EXPECT_EQ(client.Get("/v1/models").body,
            R"({"object":"list","data":[{"id":"tiny","object":"model","created":1700000000,)"
            R"("owned_by":"weightless","max_model_len":1024}]})");
  EXPECT_EQ(client.Get("/v1/models/tiny?x=1").status, 200);
  EXPECT_EQ(client.Get("/v1/models/%74iny").status, 200);
  const ClientResponse other = client.Get("/v1/models/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(Member(other.body, "code"), "model_not_found");
  EXPECT_THAT(client.Get("/v1/loads").body, HasSubstr(R"("num_queued":3,"replicas":[{"address")"));
  const ClientResponse metrics = client.Get("/metrics");
  EXPECT_EQ(metrics.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics.body, HasSubstr("weightless_"));
}

TEST(RoutesTest, NamesTheMethodsARouteHas) {
  TestServer server;
  HttpClient client(server);
  const ClientResponse get = client.Get("/v1/chat/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.headers.at("allow"), "POST");
  EXPECT_EQ(Member(get.body, "code"), "method_not_allowed");
  const ClientResponse post = client.Post("/v1/models", "{}");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(client.Get("/v1/nothing").status, 404);
  EXPECT_EQ(client.Get("/").status, 404);
}

TEST(RoutesTest, TakesJsonOnly) {
  TestServer server;
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  const auto status = [&](const std::string& fields) {
    client.Send(Concat("POST /tokenize HTTP/1.1\r\nHost: t\r\n", fields,
                       "Content-Length: 14\r\n\r\n{\"prompt\":\"a\"}"));
    return client.Receive().status;
  };
  EXPECT_EQ(status("Content-Type: application/json; charset=utf-8\r\n"), 200);
  EXPECT_EQ(status("Content-Type: Application/JSON\r\n"), 200);
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"), 415);
}

TEST(RoutesTest, KeysGuardEveryRouteButTheProbes) {
  TestServer server({}, *ApiKeys::Parse("alice:sk-1\nsk-2\n", "keys"));
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  for (const char* path : {"/v1/models", "/metrics", "/version", "/v1/loads", "/nowhere"}) {
    const ClientResponse response = client.Get(path);
    EXPECT_EQ(response.status, 401) << path;
    EXPECT_EQ(response.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(Member(response.body, "code"), "invalid_api_key");
  }
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/ready").status, 200);
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat).status, 401);
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat, "Authorization: Bearer sk-3\r\n").status,
            401);
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat, "Authorization: Bearer sk-1\r\n").status,
            200);
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat, "authorization: bearer sk-2\r\n").status,
            200);
  const auto sequences = server.dispatcher.WaitForSequences(2);
  EXPECT_EQ(sequences[0].key_id, "alice");
  EXPECT_EQ(sequences[1].key_id, "key2");
}

// The body of a caller without a key is not even waited for.
TEST(RoutesTest, RefusesWithoutReadingALongBody) {
  TestServer server({}, *ApiKeys::Parse("sk-1", "keys"));
  HttpClient client(server);
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 5000000\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 401);
}

TEST(RoutesTest, MetricsHaveAnOpenListenerOfTheirOwn) {
  RouterMetrics metrics;
  MetricsRoutes routes(metrics);
  const auto refusal = [&](const char* method, const char* path) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    const auto response = routes.CheckHead(request);
    return response ? response->status : 200;
  };
  EXPECT_EQ(refusal("GET", "/metrics"), 200);
  EXPECT_EQ(refusal("POST", "/metrics"), 405);
  EXPECT_EQ(refusal("GET", "/v1/models"), 404);
  const Answer answer = routes.Handle({}, [] {});
  EXPECT_THAT(std::get<HttpResponse>(answer).body, HasSubstr("weightless_"));
}

TEST(RoutesTest, ACallerOverItsLimitIsToldToWait) {
  RouterConfig config;
  config.max_requests_per_key = 1;
  TestServer server(config, *ApiKeys::Parse("a:1\nb:2\n", "keys"));
  HttpClient first(server), second(server);
  first.Send(PostText("/v1/chat/completions", kChat, "Authorization: Bearer 1\r\n"));
  server.dispatcher.WaitForSequences(1);
  const ClientResponse refused =
      second.Post("/v1/chat/completions", kChat, "Authorization: Bearer 1\r\n");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(Member(refused.body, "code"), "rate_limit_exceeded");
  EXPECT_EQ(Member(refused.body, "type"), "rate_limit_error");
  second.Send(PostText("/v1/chat/completions", kChat, "Authorization: Bearer 2\r\n"));
  server.dispatcher.WaitForSequences(2);
  for (const size_t i : {0, 1}) {
    server.dispatcher.stream(i)->Put(Tokens({1}, EndReason::kStop));
  }
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_EQ(second.Receive().status, 200);
  server.dispatcher.AnswerWithText("b");
  EXPECT_EQ(second.Post("/v1/chat/completions", kChat, "Authorization: Bearer 1\r\n").status, 200);
}

TEST(RoutesTest, OverloadIsDecidedBeforeAnythingIsTemplated) {
  TestServer server;
  HttpClient client(server);
  const char* no_alternation =
      R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})";
  EXPECT_EQ(client.Post("/v1/chat/completions", no_alternation).status, 400);
  for (const absl::Status& reason :
       {absl::ResourceExhaustedError("the queue is full"), absl::UnavailableError("no replica")}) {
    server.dispatcher.Refuse(reason);
    const ClientResponse response = client.Post("/v1/chat/completions", no_alternation);
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.headers.at("retry-after"), "1");
    EXPECT_EQ(Member(response.body, "code"), "overloaded");
  }
  EXPECT_EQ(server.dispatcher.num_submitted(), 0u);
}

TEST(RoutesTest, WhatTheQueueNeverHoldsIsNoOverload) {
  RouterConfig config;
  config.max_queued = 3;
  TestServer server(config);
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  const auto refusal = [&](std::string_view path, std::string_view json) {
    const ClientResponse response = client.Post(path, json);
    EXPECT_EQ(response.status, 400);
    return Concat(Member(response.body, "param"), ": ", Member(response.body, "message"));
  };
  const auto chat = [](int n) {
    return Concat(R"({"messages":[{"role":"user","content":"Hi"}],"n":)", n, "}");
  };
  EXPECT_EQ(refusal("/v1/chat/completions", chat(4)), "n: n 4 is not in [1, 3]");
  EXPECT_EQ(refusal("/v1/completions", R"({"prompt":["a","b"],"n":2})"),
            "prompt: prompt times n asks for 4 choices, more than 3");
  EXPECT_EQ(refusal("/v1/completions", R"({"prompt":["a","b","c","d"]})"),
            "prompt: prompt has 4 prompts, more than 3");
  EXPECT_EQ(client.Post("/v1/chat/completions", chat(3)).status, 200);
}

TEST(RoutesTest, WithoutAWorkerThereIsNoModel) {
  TestServer server;
  server.dispatcher.SetModel(nullptr);
  server.dispatcher.SetReady(false);
  HttpClient client(server);
  EXPECT_EQ(client.Get("/ready").status, 503);
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_EQ(client.Get("/v1/models").body, R"({"object":"list","data":[]})");
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat).status, 503);
  server.dispatcher.SetModel(TinyModel());
  server.dispatcher.AnswerWithText("b");
  EXPECT_EQ(client.Post("/v1/chat/completions", kChat).status, 200);
}

TEST(RoutesTest, TokenizesTextsAndChatsAndBack) {
  TestServer server;
  HttpClient client(server);
  const auto ids = Ids(*server.dispatcher.model(), "ab");
  std::string list;
  for (const int32_t id : ids) list += Concat(list.empty() ? "" : ",", id);
  EXPECT_EQ(
      client.Post("/tokenize", R"({"prompt":"ab"})").body,
      Concat("{\"count\":", ids.size() + 1, ",\"max_model_len\":1024,\"tokens\":[2,", list, "]}"));
  EXPECT_THAT(client.Post("/tokenize", R"({"prompt":"ab","add_special_tokens":false})").body,
              HasSubstr(Concat("\"tokens\":[", list, "]")));
  EXPECT_THAT(client.Post("/tokenize", R"({"prompt":"<bos>ab"})").body,
              HasSubstr(Concat("\"tokens\":[2,", list, "]")));
  EXPECT_THAT(client
                  .Post("/tokenize",
                        R"({"messages":[{"role":"user","content":"a"}],"return_token_strs":true})")
                  .body,
              HasSubstr(R"("token_strs":["<bos>","<start_of_turn>")"));
  EXPECT_EQ(client.Post("/detokenize", Concat("{\"tokens\":[", list, "]}")).body,
            R"({"prompt":"ab"})");
  EXPECT_EQ(client.Post("/detokenize", R"({"tokens":[99999999]})").status, 400);
  EXPECT_EQ(client.Post("/tokenize", R"({})").status, 400);
  EXPECT_EQ(client.Post("/tokenize", R"({"prompt":"a","model":"other"})").status, 404);
}

TEST(RoutesTest, CountsResponsesAndUnknownFields) {
  TestServer server;
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  client.Post("/v1/completions", R"({"prompt":"a","odd":1,"stranger":2})");
  client.Get("/nowhere");
  client.Post("/tokenize", R"({"prompt":"a","odd":1})");
  client.Post("/detokenize", R"({"tokens":[],"odd":1})");
  EXPECT_EQ(server.metrics.unknown_fields.value(), 4);
  EXPECT_EQ(server.metrics.responses_2xx.value(), 3);
  EXPECT_EQ(server.metrics.responses_4xx.value(), 1);
  EXPECT_EQ(server.metrics.requests_started.value(), 1);
  EXPECT_EQ(server.metrics.requests_length.value(), 1);
}

}  // namespace
}  // namespace weightless::router
