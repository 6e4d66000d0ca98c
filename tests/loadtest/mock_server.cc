#include "tests/loadtest/mock_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "common/check.h"
#include "common/concat.h"
#include "common/json.h"
#include "loadtest/loop_monitor.h"
#include "loadtest/steady_time.h"

namespace weightless::loadtest {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr double kLateSeconds = 0.3;
constexpr std::array kTtftBounds = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0};

struct Counters {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  std::vector<double> ttfts;  // as /metrics tells them
};

size_t CountWords(const std::string& text) {
  std::istringstream in(text);
  size_t count = 0;
  for (std::string word; in >> word;) ++count;
  return count;
}

size_t ContentLength(const std::string& head) {
  constexpr absl::string_view kName = "\r\ncontent-length:";
  const std::string lower = absl::AsciiStrToLower(head);
  const size_t at = lower.find(kName.data(), 0, kName.size());
  return at == std::string::npos ? 0 : std::strtoul(head.c_str() + at + kName.size(), nullptr, 10);
}

// 1 when neither name is there.
size_t MaxTokens(const std::string& body) {
  const auto request = ParseJson(body);
  if (!request.ok() || !request->is_object()) return 1;
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    const boost::json::value* value = request->get_object().if_contains(key);
    if (value != nullptr && value->is_int64()) return static_cast<size_t>(value->get_int64());
  }
  return 1;
}

std::string HttpChunk(const std::string& data) {
  const std::string event = Concat("data: ", data, "\n\n");
  std::ostringstream size;
  size << std::hex << event.size();
  return Concat(size.str(), "\r\n", event, "\r\n");
}

std::string Plain(const std::string& status, const std::string& body) {
  return Concat("HTTP/1.1 ", status, "\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

// What some faults answer instead of a stream.
std::string CannedAnswer(Fault fault) {
  if (fault == Fault::kRefusal) return Plain("503 Service Unavailable", "overloaded");
  if (fault == Fault::kRedirect) return Plain("307 Moved\r\nLocation: https://h/v1", "");
  if (fault == Fault::kPage) return Plain("200 OK\r\nContent-Type: text/html", "<p>Hello</p>");
  return "";
}

std::string Metrics(const Counters& counters) {
  std::ostringstream out;
  out << "# TYPE vllm:request_success_total counter\n"
      << "vllm:request_success_total{finished_reason=\"length\",model_name=\"mock\"} "
      << counters.requests << "\nvllm:prompt_tokens_total{model_name=\"mock\"} "
      << counters.prompt_tokens << "\nvllm:generation_tokens_total{model_name=\"mock\"} "
      << counters.output_tokens << "\n";
  const auto bucket = [&](const std::string& bound, size_t count) {
    out << "vllm:time_to_first_token_seconds_bucket{le=\"" << bound << "\"} " << count << "\n";
  };
  for (const double bound : kTtftBounds) {
    bucket(Concat(bound),
           static_cast<size_t>(std::count_if(counters.ttfts.begin(), counters.ttfts.end(),
                                             [bound](double ttft) { return ttft <= bound; })));
  }
  bucket("+Inf", counters.ttfts.size());
  return out.str();
}

// Waits for notes and notes how late they are.
class Witness {
 public:
  Witness() {
    CHECK(pipe2(ends_, O_CLOEXEC) == 0);
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);  // a witness far behind does not hold the server up
    thread_ = std::thread([this] {
      for (SteadyTime sent; read(ends_[0], &sent, sizeof(sent)) == sizeof(sent);) {
        delays_.push_back(Seconds(SteadyClock::now() - sent));
      }
    });
  }
  ~Witness() { Stop(); }

  void Note() {
    const SteadyTime now = SteadyClock::now();
    [[maybe_unused]] const ssize_t size = write(ends_[1], &now, sizeof(now));
  }
  std::vector<double> Stop() {
    if (thread_.joinable()) {
      close(ends_[1]);
      thread_.join();
      close(ends_[0]);
    }
    return std::move(delays_);
  }

 private:
  int ends_[2];
  std::vector<double> delays_;
  std::thread thread_;
};

}  // namespace

struct MockServer::Impl {
  explicit Impl(MockOptions o) : options(o), acceptor(io, {asio::ip::address_v4::loopback(), 0}) {
    acceptor.listen(4096);
    port = acceptor.local_endpoint().port();
    if (options.has_witness) witness.emplace();
    asio::co_spawn(io, Accept(), asio::detached);
    thread = std::thread([this] {
      LoopMonitor monitor(io);
      monitor.Start();
      io.run();
      times.lags = monitor.Stop().lags;
    });
  }

  asio::awaitable<void> Accept() {
    while (true) {
      auto [ec, socket] = co_await acceptor.async_accept(kToken);
      if (ec) co_return;
      socket.set_option(tcp::no_delay(true));
      asio::co_spawn(io, Serve(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> Serve(tcp::socket socket) {
    std::string buffer;
    while (true) {
      auto [ec, head_size] =
          co_await asio::async_read_until(socket, asio::dynamic_buffer(buffer), "\r\n\r\n", kToken);
      if (ec) co_return;
      const std::string head = buffer.substr(0, head_size);
      buffer.erase(0, head_size);
      const size_t length = ContentLength(head);
      if (buffer.size() < length) {
        auto [read_error, size] =
            co_await asio::async_read(socket, asio::dynamic_buffer(buffer),
                                      asio::transfer_exactly(length - buffer.size()), kToken);
        if (read_error) co_return;
      }
      const std::string body = buffer.substr(0, length);
      buffer.erase(0, length);
      if (!co_await Answer(socket, head, body)) co_return;
    }
  }

  asio::awaitable<bool> Answer(tcp::socket& socket, const std::string& head,
                               const std::string& body) {
    std::string answer = Plain("404 Not Found", "nothing here");
    if (head.starts_with("GET /v1/models")) {
      answer = Plain("200 OK", R"({"data":[{"id":"mock"}]})");
    } else if (head.starts_with("GET /health")) {
      answer = Plain("200 OK", "");
    } else if (head.starts_with("GET /metrics")) {
      if (++num_scrapes == options.interrupting_scrape) kill(getpid(), SIGTERM);
      if (num_scrapes <= options.max_scrapes) answer = Plain("200 OK", Metrics(counters));
    } else if (head.starts_with("POST /tokenize") && options.has_tokenize) {
      const auto text = ParseJson(body)->at("prompt").as_string();
      answer = Plain("200 OK", Concat("{\"count\":", CountWords({text.data(), text.size()}), "}"));
    } else if (head.starts_with("POST /v1/")) {
      co_return co_await Generate(socket, body);
    }
    co_return co_await Write(socket, answer);
  }

  asio::awaitable<bool> Write(tcp::socket& socket, const std::string& text) {
    auto [ec, size] = co_await asio::async_write(socket, asio::buffer(text), kToken);
    co_return !ec;
  }

  asio::awaitable<void> WaitUntil(asio::steady_timer& timer, SteadyTime when) {
    timer.expires_at(when);
    co_await timer.async_wait(kToken);
  }

  std::string Content(const std::string& text, int num_ids) const {
    std::string ids;
    for (int i = 0; i < num_ids; ++i) ids += i == 0 ? "7" : ",7";
    return HttpChunk(Concat(
        R"({"id":"c","object":"chat.completion.chunk","created":1,"model":"mock","choices":[)",
        R"({"index":0,"delta":{"content":")", text, "\"},",
        options.sends_token_ids ? Concat("\"token_ids\":[", ids, "],") : std::string(),
        R"("logprobs":null,"finish_reason":null}]})"));
  }

  std::string End(Fault fault, size_t prompt_tokens, size_t tokens) const {
    std::string out;
    if (fault != Fault::kMissingFinish && fault != Fault::kMissingEnd) {
      out += HttpChunk(R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})");
    }
    if (fault == Fault::kContentAfterFinish) out += Content("late", 0);
    const size_t told = tokens + (fault == Fault::kWrongUsage ? 1 : 0);
    if (fault != Fault::kMissingUsage) {
      out += HttpChunk(Concat(R"({"choices":[],"usage":{"prompt_tokens":)", prompt_tokens,
                              R"(,"completion_tokens":)", told, R"(,"total_tokens":)",
                              prompt_tokens + told, "}}"));
    }
    if (fault != Fault::kMissingDone && fault != Fault::kMissingEnd) out += HttpChunk("[DONE]");
    return out + "0\r\n\r\n";
  }

  // The chunks with content, on their schedule; false when the client is gone or is to be left.
  asio::awaitable<bool> WriteContent(tcp::socket& socket, SteadyTime start, size_t tokens,
                                     Fault fault, std::vector<SteadyTime>& written) {
    asio::steady_timer timer(io);
    const auto per_chunk = static_cast<size_t>(options.tokens_per_chunk);
    for (size_t token = 0, chunk = 0; token < tokens; token += per_chunk, ++chunk) {
      const double offset = options.ttft_seconds + static_cast<double>(chunk) * options.itl_seconds;
      const SteadyTime due = start + FromSeconds(offset);
      if (due > SteadyClock::now()) co_await WaitUntil(timer, due);
      if (chunk == 1 && fault == Fault::kBrokenStream) {
        socket.close();
        co_return false;
      }
      const int num_ids = static_cast<int>(std::min(per_chunk, tokens - token));
      written.push_back(SteadyClock::now());
      std::string text = Content("word ", num_ids);
      if (chunk == 1 && fault == Fault::kDuplicateChunk) text += text;
      if (chunk == 1 && fault == Fault::kBadUtf8) text = Content("\xff", num_ids);
      if (chunk == 1 && fault == Fault::kEndlessEvent) text = HttpChunk(std::string(20 << 20, 'a'));
      if (chunk == 1 && fault == Fault::kErrorEvent) {
        text = HttpChunk(R"({"error":{"message":"worker lost","code":"internal"}})");
      }
      if (!co_await Write(socket, text)) co_return false;
      if (witness) witness->Note();
    }
    co_return true;
  }

  asio::awaitable<bool> Generate(tcp::socket& socket, const std::string& body) {
    const SteadyTime read = SteadyClock::now();
    if (num_requests == 0) times.first_read = read;
    const Fault fault = num_requests++ % options.fault_every == 0 ? options.fault : Fault::kNone;
    bodies.push_back(body);
    if (const std::string answer = CannedAnswer(fault); !answer.empty()) {
      co_return co_await Write(socket, answer);
    }
    const size_t tokens = MaxTokens(body);
    const SteadyTime start =
        fault == Fault::kLateFirstByte ? read + FromSeconds(kLateSeconds) : read;
    std::string head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (options.role_lead_seconds >= 0) {
      asio::steady_timer timer(io);
      co_await WaitUntil(timer,
                         start + FromSeconds(options.ttft_seconds - options.role_lead_seconds));
      head += HttpChunk(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})");
    }
    if (!co_await Write(socket, head)) co_return false;
    std::vector<SteadyTime> written;
    if (!co_await WriteContent(socket, start, tokens, fault, written)) co_return false;
    const size_t prompt_tokens = CountWords(body);
    Note(read, start, written, tokens);
    counters.requests += 1;
    counters.prompt_tokens += prompt_tokens;
    counters.output_tokens += tokens - (fault == Fault::kWrongMetric ? 1 : 0);
    const bool is_written = co_await Write(socket, End(fault, prompt_tokens, tokens));
    times.last_written = SteadyClock::now();
    co_return is_written;
  }

  void Note(SteadyTime read, SteadyTime start, const std::vector<SteadyTime>& written,
            size_t tokens) {
    counters.ttfts.push_back(Seconds(written.front() - start));
    times.num_tokens += tokens;
    times.ttft.push_back(Seconds(written.front() - read));
    times.e2e.push_back(Seconds(SteadyClock::now() - read));
    if (tokens > 1) {
      times.tpot.push_back(Seconds(written.back() - written.front()) /
                           static_cast<double>(tokens - 1));
    }
    for (size_t i = 1; i < written.size(); ++i) {
      times.gaps.push_back(Seconds(written[i] - written[i - 1]));
    }
  }

  const MockOptions options;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  uint16_t port = 0;
  std::optional<Witness> witness;
  std::thread thread;
  // Owned by the thread until it has ended.
  Counters counters;
  MockTimes times;
  std::vector<std::string> bodies;
  int num_requests = 0;
  int num_scrapes = 0;
};

MockServer::MockServer(MockOptions options) : impl_(std::make_unique<Impl>(options)) {}

MockServer::~MockServer() { Stop(); }

Url MockServer::url() const { return {.host = "127.0.0.1", .port = impl_->port, .path = {}}; }

MockTimes MockServer::Stop() {
  impl_->io.stop();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
    if (impl_->witness) impl_->times.witness_delays = impl_->witness->Stop();
  }
  return impl_->times;
}

const std::vector<std::string>& MockServer::bodies() const { return impl_->bodies; }

}  // namespace weightless::loadtest
