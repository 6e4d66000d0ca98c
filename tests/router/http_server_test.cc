// The server over real sockets: bounds, framing, time-outs, connections.
#include "router/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/concat.h"
#include "tests/router/http_client.h"

namespace weightless::router {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr char kPrompt[] = R"({"prompt":"a","max_tokens":2})";

std::string Padding(size_t size) { return std::string(size, 'x'); }

TEST(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  TestServer server;
  HttpClient client(server);
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.Get("/health");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
    EXPECT_EQ(response.headers.at("date"), "Tue, 14 Nov 2023 22:13:20 GMT");
  }
}

TEST(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  client.Send("GET /version HTTP/1.1\r\nHost: t\r\n\r\n" + PostText("/v1/completions", kPrompt) +
              "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_THAT(client.Receive().body, HasSubstr("version"));
  EXPECT_THAT(client.Receive().body, HasSubstr("text_completion"));
  EXPECT_EQ(client.Receive().body, R"({"status":"ok"})");
}

TEST(HttpServerTest, TakesARequestByteByByte) {
  TestServer server;
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  for (const char c : PostText("/v1/completions", kPrompt)) client.Send({&c, 1});
  EXPECT_EQ(client.Receive().status, 200);
  const std::string head =
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : head + "0\r\n\r\n") client.Send({&c, 1});
  EXPECT_EQ(Member(client.Receive().body, "code"), "invalid_json");
  for (const char c : head + "e\r\n{\"prompt\":\"a\"}\r\n0\r\n\r\n") client.Send({&c, 1});
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpServerTest, TakesAChunkedBody) {
  TestServer server;
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server);
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
      "b\r\n{\"prompt\":\"\r\ne;name=value\r\na\", \"n\":  1}  \r\n0\r\nTrailer: x\r\n\r\n");
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(HttpServerTest, HeadHasNoBody) {
  TestServer server;
  HttpClient client(server);
  client.Send("HEAD /health HTTP/1.1\r\nHost: t\r\n\r\n");
  const ClientResponse response = client.Receive(/*is_head=*/true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-length"), "15");
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(HttpServerTest, ClosesAfterHttp10UnlessAskedToKeep) {
  TestServer server;
  HttpClient closing(server);
  closing.Send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(closing.Receive().headers.at("connection"), "close");
  EXPECT_TRUE(closing.IsClosed());
  HttpClient keeping(server);
  keeping.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(keeping.Receive().headers.at("connection"), "keep-alive");
  EXPECT_EQ(keeping.Get("/health").status, 200);
}

TEST(HttpServerTest, EchoesAProperRequestIdAndReplacesAnother) {
  TestServer server;
  HttpClient client(server);
  const auto id_for = [&](const std::string& sent) {
    client.Send(Concat("GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: ", sent, "\r\n\r\n"));
    return client.Receive().headers.at("x-request-id");
  };
  EXPECT_EQ(id_for("abc-1.2:3"), "abc-1.2:3");
  EXPECT_THAT(id_for("a b"), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(id_for(Padding(129)), testing::MatchesRegex("[0-9a-f]{32}"));
  client.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.Receive().headers.at("x-request-id"), testing::MatchesRegex("[0-9a-f]{32}"));
}

TEST(HttpServerTest, TakesATargetInAbsoluteForm) {
  TestServer server;
  HttpClient client(server);
  const auto status_of = [&](const std::string& target) {
    client.Send(Concat("GET ", target, " HTTP/1.1\r\nHost: t\r\n\r\n"));
    return client.Receive().status;
  };
  EXPECT_EQ(status_of("http://t/health"), 200);
  EXPECT_EQ(status_of("HTTPS://t:8443/health?a=b"), 200);
  EXPECT_EQ(status_of("Http://t"), 404);             // the path "/"
  EXPECT_EQ(status_of("https://t?a=/health"), 404);  // likewise
  EXPECT_EQ(status_of("ftp://t/health"), 400);
}

TEST(HttpServerTest, IgnoresEmptyLinesBeforeARequest) {
  TestServer server;
  HttpClient client(server);
  for (const char* part : {"\r", "\n\r\n", "\r\nGET /health HTTP/1.1\r\nHost: t\r\n\r\n\r\n\r"}) {
    client.Send(part);
  }
  EXPECT_EQ(client.Receive().status, 200);
  client.Send("\nGET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
  client.Send("\r\r\nGET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 400);
}

TEST(HttpServerTest, BoundsTheEmptyLinesBeforeARequest) {
  RouterConfig config;
  config.http.max_header_bytes = 1000;
  TestServer server(config);
  const auto lines = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "\r\n";
    return text;
  };
  HttpClient patient(server), endless(server);
  patient.Send(lines(500) + "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(patient.Receive().status, 200);
  endless.Send(lines(501));
  EXPECT_TRUE(endless.IsClosed());
}

// One thread, and a client of which there is always something to read.
TEST(HttpServerTest, AClientThatNeverPausesGivesTheOthersTheirTurn) {
  RouterConfig config;
  config.http.num_threads = 1;
  config.http.max_body_bytes = int64_t{1} << 40;
  TestServer server(config);
  std::atomic<bool> stop = false;
  std::atomic<int> num_mib_sent = 0;
  std::thread busy([&] {
    HttpClient client(server);
    client.Send("POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::string chunks;
    while (chunks.size() < (1 << 20)) chunks += "1\r\nx\r\n";
    for (; !stop; ++num_mib_sent) client.Send(chunks);
  });
  while (num_mib_sent < 8) absl::SleepFor(absl::Milliseconds(1));  // more than the socket holds
  const int num_before = num_mib_sent;
  for (int i = 0; i < 20; ++i) {
    HttpClient client(server);
    EXPECT_EQ(client.Get("/health").status, 200);
  }
  EXPECT_LT(num_mib_sent - num_before, 100);  // a turn takes a quarter
  stop = true;
  busy.join();
}

// Out of memory, say: the client does not take what it got for all, and a drain does not wait.
TEST(HttpServerTest, AnExceptionEndsItsConnectionAlone) {
  class ThrowingReply : public Reply {
    Progress Advance(std::string& out) override {
      if (std::exchange(has_begun_, true)) throw std::runtime_error("later");
      out = "begun";
      return {.streaming = true, .done = false, .whole = std::nullopt};
    }
    bool KeepAlive(std::string&) override { throw std::runtime_error("silent"); }
    void OnWritten(absl::Time) override { throw std::runtime_error("written"); }

    bool has_begun_ = false;
  };
  class ThrowingHandler : public HttpHandler {
    std::optional<HttpResponse> CheckHead(HttpRequest&) override { return std::nullopt; }
    Answer Handle(HttpRequest request, std::function<void()>) override {
      if (request.path == "/sound") return HttpResponse();
      if (request.path == "/handle") throw std::bad_alloc();
      return std::make_unique<ThrowingReply>();
    }
  };
  ThrowingHandler handler;
  RealClock clock;
  RouterMetrics metrics;
  HttpServer server({}, handler, clock, metrics);
  ASSERT_TRUE(server.Listen("127.0.0.1", 0).ok());
  HttpClient sound(server.port()), handle(server.port()), advance(server.port());
  EXPECT_EQ(sound.Get("/sound").status, 200);
  ::testing::internal::CaptureStderr();
  handle.Send("GET /handle HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine\r\n\r\n");
  EXPECT_TRUE(handle.IsClosed());
  advance.Send("GET /advance HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_THAT(advance.ReceiveAll(), EndsWith("5\r\nbegun\r\n"));  // not the last chunk
  EXPECT_TRUE(server.WaitUntilIdle(absl::Now() + absl::Seconds(10)));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("mine"));
  EXPECT_THAT(log, HasSubstr("bad_alloc"));
  EXPECT_EQ(sound.Get("/sound").status, 200);
}

TEST(HttpServerTest, AnswersAClientThatHasEndedItsSide) {
  TestServer server;
  HttpClient client(server);
  client.Send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  client.EndInput();
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_TRUE(client.IsClosed());
}

// For a generation that means that it left.
TEST(HttpServerTest, AbortsTheGenerationOfAClientThatHasEndedItsSide) {
  TestServer server;
  HttpClient client(server);
  client.Send(PostText("/v1/completions", R"({"prompt":"a"})"));
  client.EndInput();
  server.dispatcher.WaitForSequences(1);
  EXPECT_TRUE(server.dispatcher.WaitForClosed());
  EXPECT_TRUE(client.IsClosed());
}

// Each of these could be read in two ways by two servers in a row.
TEST(HttpServerTest, RefusesAmbiguousFramingAndCloses) {
  TestServer server;
  for (const char* fields : {
           "Content-Length: 1\r\nContent-Length: 2\r\n",
           "Content-Length: 2\r\nContent-Length: 2\r\n",
           "Content-Length: 2, 2\r\n",
           "Content-Length: +2\r\n",
           "Content-Length: -1\r\n",
           "Content-Length: 0x2\r\n",
           "Content-Length: 99999999999999999999999\r\n",
           "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: gzip\r\n",
           "Transfer-Encoding: gzip, chunked\r\n",
           "Transfer-Encoding: chunked, identity\r\n",
           "Transfer-Encoding: xchunked\r\n",
           "Content-Length : 2\r\n",
           "Host: other\r\n",
           "Bad Name: 2\r\n",
           "No-Colon\r\n",
       }) {
    HttpClient client(server);
    client.Send(Concat("POST /v1/completions HTTP/1.1\r\nHost: t\r\n", fields, "\r\n{}"));
    const ClientResponse response = client.Receive();
    EXPECT_EQ(response.status, 400) << fields << response.body;
    EXPECT_EQ(Member(response.body, "code"), "bad_request") << fields;
    EXPECT_EQ(response.headers.at("connection"), "close") << fields;
    EXPECT_TRUE(client.IsClosed()) << fields;
  }
}

TEST(HttpServerTest, RefusesWhatIsNoRequest) {
  TestServer server;
  for (const char* bytes : {
           "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
           "GET\r\n\r\n",
           "GET / HTTP/2.0\r\nHost: t\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "GET nopath HTTP/1.1\r\nHost: t\r\n\r\n",
           "GET /%zz HTTP/1.1\r\nHost: t\r\n\r\n",
           "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
           "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
           "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
           "ffffffffffffffffff\r\n",
       }) {
    HttpClient client(server);
    client.Send(bytes);
    EXPECT_EQ(client.Receive().status, 400) << bytes;
    EXPECT_TRUE(client.IsClosed()) << bytes;
  }
}

TEST(HttpServerTest, BoundsTheHeader) {
  TestServer server;
  HttpClient big(server);
  big.Send(Concat("GET /health HTTP/1.1\r\nHost: t\r\nA: ", Padding(70000), "\r\n\r\n"));
  EXPECT_EQ(big.Receive().status, 431);
  HttpClient endless(server);
  endless.Send(Concat("GET /", Padding(70000)));
  EXPECT_EQ(endless.Receive().status, 431);
  std::string fields;
  for (int i = 0; i < 128; ++i) fields += Concat("F", i, ": x\r\n");
  HttpClient many(server);
  many.Send(Concat("GET /health HTTP/1.1\r\nHost: t\r\n", fields, "\r\n"));
  EXPECT_EQ(many.Receive().status, 431);
}

TEST(HttpServerTest, BoundsTheBody) {
  RouterConfig config;
  config.http.max_body_bytes = 1000;
  TestServer server(config);
  HttpClient client(server);
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
      "Content-Length: 1001\r\n\r\n");
  const ClientResponse response = client.Receive();  // before any byte of the body
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(Member(response.body, "code"), "body_too_large");
  HttpClient chunked(server);
  chunked.Send(Concat("POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n",
                      "3e9\r\n", Padding(1001)));
  EXPECT_EQ(chunked.Receive().status, 413);
  HttpClient within(server);
  EXPECT_EQ(within.Post("/tokenize", Concat(R"({"prompt":")", Padding(900), "\"}")).status, 200);
}

// The bodies of all connections together have a bound. What has been handled does not count.
TEST(HttpServerTest, BoundsAllBodiesTogether) {
  RouterConfig config;
  config.http.max_total_body_bytes = 1000;
  TestServer server(config);
  absl::Notification may_go_on;
  server.dispatcher.AnswerWith([&](const SequenceRequest&, TokenStream& stream) {
    may_go_on.WaitForNotification();
    stream.Put(Tokens({1}, EndReason::kStop));
  });
  const std::string json = Concat(kPrompt, std::string(600, ' '));
  HttpClient first(server), second(server);  // of two threads
  EXPECT_EQ(first.Get("/health").status, 200);
  EXPECT_EQ(second.Get("/health").status, 200);
  first.Send(PostText("/v1/completions", json));
  server.dispatcher.WaitForSequences(1);
  const ClientResponse refused = second.Post("/v1/completions", json);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(Member(refused.body, "code"), "overloaded");
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_TRUE(second.IsClosed());
  may_go_on.Notify();
  EXPECT_EQ(first.Receive().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first.Post("/v1/completions", json).status, 200);
}

TEST(HttpServerTest, HandlesABigBodyWithinTheLimit) {
  TestServer server;
  HttpClient client(server);
  const std::string json = Concat(R"({"prompt":")", Padding(1 << 20), "\"}");
  const ClientResponse response = client.Post("/v1/completions", json);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Member(response.body, "code"), "context_length_exceeded");
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(HttpServerTest, WaitsForTheBodyOnlyWhenItIsWelcome) {
  TestServer server;
  HttpClient client(server);
  const std::string expect = "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n";
  client.Send("POST /tokenize HTTP/1.1\r\nHost: t\r\n" + expect);
  EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(R"({"prompt":"a"})");
  EXPECT_EQ(client.Receive().status, 200);
  client.Send("POST /nowhere HTTP/1.1\r\nHost: t\r\n" + expect);
  EXPECT_EQ(client.Receive().status, 404);
  HttpClient other(server);
  other.Send("GET /health HTTP/1.1\r\nHost: t\r\nExpect: coffee\r\n\r\n");
  EXPECT_EQ(other.Receive().status, 417);
}

TEST(HttpServerTest, KeepsTheConnectionAfterARefusedShortBody) {
  TestServer server;
  HttpClient client(server);
  EXPECT_EQ(client.Post("/nowhere", kPrompt).status, 404);
  EXPECT_EQ(client.Post("/health", kPrompt).status, 405);
  EXPECT_EQ(client.Get("/health").status, 200);
  client.Send("POST /nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: 5000000\r\n\r\nxxx");
  EXPECT_EQ(client.Receive().headers.at("connection"), "close");
}

TEST(HttpServerTest, CutsOffASlowHeader) {
  TestServer server;
  HttpClient client(server);
  client.Send("GET /health HT");
  client.PassTimeUntilReadable(server);
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.status, 408);
  EXPECT_EQ(Member(response.body, "code"), "request_timeout");
  EXPECT_TRUE(client.IsClosed());
}

// Bytes that keep coming do not buy time.
TEST(HttpServerTest, CutsOffAHeaderThatDripsIn) {
  TestServer server;
  HttpClient client(server);
  client.Send("GET /health HTTP/1.1\r\n");
  for (int second = 0; second < 30 && client.Send("A: b\r\n"); ++second) {
    server.clock.Advance(absl::Seconds(1));
  }
  client.PassTimeUntilReadable(server);
  EXPECT_EQ(client.Receive().status, 408);
}

TEST(HttpServerTest, CutsOffASlowBody) {
  TestServer server;
  HttpClient client(server);
  client.Send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  client.PassTimeUntilReadable(server);
  EXPECT_EQ(client.Receive().status, 408);
}

TEST(HttpServerTest, ClosesAnIdleConnectionInSilence) {
  TestServer server;
  HttpClient fresh(server);
  HttpClient used(server);
  EXPECT_EQ(used.Get("/health").status, 200);
  fresh.PassTimeUntilReadable(server);
  EXPECT_TRUE(fresh.IsClosed());
  used.PassTimeUntilReadable(server);
  EXPECT_TRUE(used.IsClosed());
}

// The thread learns in one turn that the idle time is over and that the next request has begun.
TEST(HttpServerTest, ARequestThatComesAsTheIdleTimeEndsHasItsOwnTime) {
  RouterConfig config;
  config.http.num_threads = 1;
  TestServer server(config);
  server.dispatcher.AnswerWithText("b");
  HttpClient client(server), other(server);
  EXPECT_EQ(client.Post("/v1/completions", kPrompt).status, 200);
  absl::Notification has_begun;
  server.dispatcher.AnswerWith([&](const SequenceRequest&, TokenStream& stream) {
    has_begun.WaitForNotification();
    absl::SleepFor(4 * server.config.http.tick);  // the thread is busy while a tick comes due
    stream.Put(Tokens({1}, EndReason::kStop));
  });
  other.Send(PostText("/v1/completions", kPrompt));
  server.dispatcher.WaitForSequences(2);
  server.clock.Advance(server.config.http.idle_timeout);
  client.Send("GET /health HT");
  has_begun.Notify();
  EXPECT_EQ(other.Receive().status, 200);
  client.Send("TP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpServerTest, TurnsAwayMoreConnectionsThanItMayHave) {
  RouterConfig config;
  config.http.max_connections = 2;
  TestServer server(config);
  HttpClient first(server), second(server);
  EXPECT_EQ(first.Get("/health").status, 200);
  EXPECT_EQ(second.Get("/health").status, 200);
  HttpClient third(server);
  const ClientResponse response = third.Receive();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_THAT(response.headers.at("x-request-id"), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_TRUE(third.IsClosed());
  EXPECT_EQ(first.Get("/health").status, 200);
}

TEST(HttpServerTest, NamesAnAddressThatIsTaken) {
  TestServer server;
  RouterMetrics metrics;
  HttpServer other(server.config.http, server.routes, server.clock, metrics);
  const absl::Status status = other.Listen("127.0.0.1", server.server.port());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(Concat("127.0.0.1:", server.server.port(), ": Address already in use")));
  EXPECT_FALSE(other.Listen("no.such.host.invalid", 0).ok());
}

TEST(HttpServerTest, StopsWithConnectionsOpenInEveryState) {
  TestServer server;
  HttpClient idle(server), half(server), body(server), waiting(server);
  half.Send("GET /health HT");
  body.Send("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  waiting.Send(PostText("/v1/completions", kPrompt));
  server.dispatcher.WaitForSequences(1);
  server.server.Stop();
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_TRUE(half.IsClosed());
  EXPECT_TRUE(body.IsClosed());
  EXPECT_TRUE(waiting.IsClosed());
  EXPECT_TRUE(server.dispatcher.stream(0)->closed());
}

}  // namespace
}  // namespace weightless::router
