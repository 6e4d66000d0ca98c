#include "router/http_connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "common/concat.h"
#include "common/log.h"
#include "router/api_error.h"
#include "router/http_channel.h"
#include "router/http_head.h"
#include "router/http_parser.h"
#include "router/random_id.h"

namespace weightless::router {
namespace {

namespace asio = boost::asio;

constexpr size_t kMaxDiscardBytes = 64 << 10;  // of a refused body, to keep the connection
constexpr size_t kSlowBodyBytes = 64 << 10;    // handled away from this thread from here on

// A connection's part of the request bodies in memory.
class BodyShare {
 public:
  explicit BodyShare(HttpShared& shared) : shared_(shared) {}
  ~BodyShare() { Release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // Counts so many more. False when all bodies together are too large now.
  bool Add(size_t num_bytes) {
    const auto added = static_cast<int64_t>(num_bytes);
    num_bytes_ += added;
    return shared_.body_bytes.fetch_add(added) + added <= shared_.options.max_total_body_bytes;
  }
  void Release() { shared_.body_bytes -= std::exchange(num_bytes_, 0); }

 private:
  HttpShared& shared_;
  int64_t num_bytes_ = 0;
};

// In the coroutines below every co_await stands in a statement of its own: GCC 12 loses the frame
// when one is a condition's operand.

class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, int socket, HttpShared& shared,
             std::function<void(HttpConnection*)> on_end)
      : io_(io),
        channel_(
            std::make_shared<HttpChannel>(io, socket, shared.options, shared.clock, shared.tls)),
        shared_(shared),
        body_share_(shared),
        on_end_(std::move(on_end)) {}

  void Start() {
    asio::co_spawn(io_, Hold(shared_from_this()),
                   [self = shared_from_this()](const std::exception_ptr& error) {
                     if (error != nullptr) self->OnException(error);
                     self->End();
                   });
  }

  void Tick(absl::Time now) override { channel_->Tick(now); }
  void Close() override { channel_->Close(); }

 private:
  static Awaitable<void> Hold(std::shared_ptr<Connection> self) { co_await self->Run(); }
  Awaitable<void> Run();
  void OnException(const std::exception_ptr& error);
  void End();

  Awaitable<bool> Handshake();
  Awaitable<bool> ReadRequest();
  Awaitable<bool> ReadHeader();
  Awaitable<bool> ReadBody();
  Awaitable<bool> ReadMore(std::string_view what, absl::Duration limit);
  size_t Parse();
  void ReleaseBuffers();
  Awaitable<bool> RefuseHead(HttpResponse refusal);
  Awaitable<void> RefuseBody();
  Awaitable<void> RefuseAndClose(HttpResponse refusal);

  Awaitable<void> AnswerRequest();
  Awaitable<Answer> Handle();
  Awaitable<void> Pump(Reply& reply);
  Awaitable<bool> Respond(const HttpResponse& response);
  Awaitable<bool> SendPiece(std::string_view piece, bool last);

  asio::io_context& io_;
  const std::shared_ptr<HttpChannel> channel_;
  HttpShared& shared_;
  BodyShare body_share_;
  const std::function<void(HttpConnection*)> on_end_;

  std::optional<HttpParser> parser_;
  std::string request_id_;
  std::string out_;  // one Advance's bytes
  bool head_sent_ = false;
  bool keep_alive_ = true;  // after the current answer
  bool lingers_ = false;    // the client may still be sending when the connection ends
};

Awaitable<void> Connection::Run() {
  if (shared_.tls != nullptr) {
    const bool is_established = co_await Handshake();
    keep_alive_ = is_established;
  }
  while (keep_alive_ && !channel_->peer_left()) {
    const bool has_request = co_await ReadRequest();
    if (!has_request) break;
    co_await AnswerRequest();
  }
  if (lingers_ && !channel_->peer_left()) co_await channel_->Linger();
}

// Memory has run out, say. The client must not take what it has got for the whole answer.
void Connection::OnException(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    LogError("connection_failed", {{"request_id", request_id_}, {"error", exception.what()}});
  }
  channel_->Close();
}

void Connection::End() {
  channel_->End();
  on_end_(this);
}

// False when there is no session. A client that speaks HTTP in the clear is told so.
Awaitable<bool> Connection::Handshake() {
  channel_->LimitReads(shared_.options.header_timeout);
  const HttpChannel::Session session = co_await channel_->Handshake();
  if (session == HttpChannel::Session::kPlainHttp) {
    parser_.emplace(shared_.options);
    HttpResponse refusal = RefusalResponse(400, "bad_request", "this port speaks HTTPS only");
    co_await RefuseAndClose(std::move(refusal));
  }
  co_return session == HttpChannel::Session::kEstablished;
}

// Reads one request. False: there is none, or it has been refused and the connection ends. A
// refusal that lets the connection live reads the next one.
Awaitable<bool> Connection::ReadRequest() {
  for (;;) {
    parser_.emplace(shared_.options);
    body_share_.Release();
    request_id_.clear();
    ReleaseBuffers();
    const bool has_header = co_await ReadHeader();
    if (!has_header) co_return false;
    request_id_ = parser_->head().request.request_id;
    keep_alive_ = parser_->keep_alive() && !shared_.draining;
    if (auto refusal = shared_.handler.CheckHead(parser_->head().request)) {
      const bool goes_on = co_await RefuseHead(*std::move(refusal));
      if (!goes_on) co_return false;
      continue;
    }
    const bool has_body = co_await ReadBody();
    if (!has_body) co_return false;
    HttpRequest& request = parser_->head().request;
    request.body = parser_->TakeBody();
    request.received_at = shared_.clock.Now();
    ReleaseBuffers();
    co_return true;
  }
}

Awaitable<bool> Connection::ReadHeader() {
  // Empty lines before a request are ignored (RFC 9112, 2.2), as many bytes as a header may have.
  int64_t num_skipped = 0;
  const auto skip_empty_lines = [&input = channel_->input(), &num_skipped] {
    size_t end = 0;
    while (input.compare(end, 2, "\r\n") == 0) end += 2;
    input.erase(0, end);
    num_skipped += static_cast<int64_t>(end);
    return input.empty() || input == "\r";
  };
  channel_->LimitReads(shared_.options.idle_timeout);
  while (skip_empty_lines()) {
    if (num_skipped > shared_.options.max_header_bytes) co_return false;
    const bool has_input = co_await channel_->ReadSome();
    if (!has_input) co_return false;
  }
  channel_->LimitReads(shared_.options.header_timeout);
  for (Parse(); parser_->state() == HttpParser::State::kHeader; Parse()) {
    const bool has_input = co_await ReadMore("header", shared_.options.header_timeout);
    if (!has_input) co_return false;
  }
  if (parser_->state() != HttpParser::State::kRefused) co_return true;
  HttpResponse refusal = parser_->refusal();
  co_await RefuseAndClose(std::move(refusal));
  co_return false;
}

Awaitable<bool> Connection::ReadBody() {
  if (parser_->state() == HttpParser::State::kBody && parser_->head().expects_continue &&
      channel_->input().empty()) {
    channel_->WriteNow({"HTTP/1.1 100 Continue\r\n\r\n"});
    const bool is_sent = co_await channel_->WriteRest();
    if (!is_sent) co_return false;
  }
  channel_->LimitReads(shared_.options.body_timeout);
  while (parser_->state() == HttpParser::State::kBody) {
    if (!body_share_.Add(Parse())) {
      co_await RefuseBody();
      co_return false;
    }
    if (parser_->state() == HttpParser::State::kBody) {
      const bool has_input = co_await ReadMore("body", shared_.options.body_timeout);
      if (!has_input) co_return false;
    }
  }
  if (parser_->state() == HttpParser::State::kDone) co_return true;
  HttpResponse refusal = parser_->refusal();
  co_await RefuseAndClose(std::move(refusal));
  co_return false;
}

// Parses what has been read; returns how much of it.
size_t Connection::Parse() {
  const size_t num_parsed = parser_->Read(channel_->input());
  channel_->input().erase(0, num_parsed);
  return num_parsed;
}

// False when the client has gone, or was late and has been told.
Awaitable<bool> Connection::ReadMore(std::string_view what, absl::Duration limit) {
  const bool has_input = co_await channel_->ReadSome();
  if (!has_input && channel_->timed_out()) {
    HttpResponse refusal = RefusalResponse(
        408, "request_timeout",
        Concat("the ", what, " was not complete after ", absl::ToDoubleSeconds(limit), " s"));
    co_await RefuseAndClose(std::move(refusal));
  }
  co_return has_input;
}

// A connection that idles, or waits for a long answer, holds no more than it needs.
void Connection::ReleaseBuffers() {
  out_.clear();
  out_.shrink_to_fit();
  channel_->ReleaseBuffers();
}

// Answers before the body is read; false when the connection ends with that. A short body is
// skipped, for a long one it is not worth it.
Awaitable<bool> Connection::RefuseHead(HttpResponse refusal) {
  const bool is_short =
      parser_->state() == HttpParser::State::kDone ||
      parser_->content_length().value_or(kMaxDiscardBytes + 1) <= kMaxDiscardBytes;
  if (!is_short || parser_->head().expects_continue) {
    co_await RefuseAndClose(std::move(refusal));
    co_return false;
  }
  const bool has_body = co_await ReadBody();
  if (!has_body) co_return false;
  const bool is_sent = co_await Respond(refusal);
  co_return is_sent&& keep_alive_;
}

// There is no room for more of the body.
Awaitable<void> Connection::RefuseBody() {
  shared_.metrics.refused_overloaded.Add();
  HttpResponse refusal = ErrorResponse(absl::ResourceExhaustedError(
      Concat("all request bodies together are larger than ", shared_.options.max_total_body_bytes,
             " bytes, the server's limit")));
  co_await RefuseAndClose(std::move(refusal));
}

Awaitable<void> Connection::RefuseAndClose(HttpResponse refusal) {
  keep_alive_ = false;
  lingers_ = true;
  co_await Respond(refusal);
  parser_.reset();  // with what has come of the body
  body_share_.Release();
}

Awaitable<Answer> Connection::Handle() {
  std::function<void()> wake = channel_->wake();
  HttpRequest request = std::exchange(parser_->head().request, {});
  if (request.body.size() < kSlowBodyBytes) {
    co_return shared_.handler.Handle(std::move(request), std::move(wake));
  }
  Answer answer = co_await asio::co_spawn(
      shared_.slow_pool,
      [this, &request, &wake]() -> Awaitable<Answer> {
        co_return shared_.handler.Handle(std::move(request), std::move(wake));
      },
      asio::use_awaitable);
  co_return answer;
}

Awaitable<void> Connection::AnswerRequest() {
  const ActiveRequests::Entry entry(shared_.active);
  head_sent_ = false;
  Answer answer = co_await Handle();  // gone before `entry`: a Reply that is not done learns that
                                      // the client left
  body_share_.Release();
  if (const auto* response = std::get_if<HttpResponse>(&answer)) {
    const bool is_sent = co_await Respond(*response);
    keep_alive_ = keep_alive_ && is_sent;
  } else {
    channel_->Watch();
    co_await Pump(*std::get<std::unique_ptr<Reply>>(answer));
    channel_->Unwatch();
  }
}

// Sends what the reply brings as it comes, until it is done or the client leaves.
Awaitable<void> Connection::Pump(Reply& reply) {
  bool is_silent = false;  // nothing has been sent for keep_alive_interval
  while (!channel_->peer_left()) {
    out_.clear();
    Reply::Progress progress = reply.Advance(out_);
    if (progress.whole) {
      const bool is_sent = co_await Respond(*progress.whole);
      keep_alive_ = keep_alive_ && is_sent;
      if (is_sent) reply.OnWritten(shared_.clock.Now());
      co_return;
    }
    if (is_silent && out_.empty() && !progress.done) {
      progress.streaming = reply.KeepAlive(out_);
    }
    if (progress.streaming && (!out_.empty() || progress.done)) {
      const bool is_sent = co_await SendPiece(out_, progress.done);
      if (!is_sent) break;
      reply.OnWritten(shared_.clock.Now());
    }
    if (progress.done) co_return;
    const bool was_woken = co_await channel_->WaitForWake(shared_.options.keep_alive_interval);
    is_silent = !was_woken;
  }
  keep_alive_ = false;
}

// One chunk of a stream, after the head if that has not been sent.
Awaitable<bool> Connection::SendPiece(std::string_view piece, bool last) {
  const bool is_chunked = parser_->version() >= 11;
  std::string head;
  if (!std::exchange(head_sent_, true)) {
    keep_alive_ = keep_alive_ && is_chunked;
    head = ResponseHeadText(EventStreamResponse(), {parser_->version(), keep_alive_, std::nullopt},
                            request_id_, shared_.clock.Now());
    shared_.CountResponse(200);
  }
  std::string size_line;
  std::string_view end;
  if (is_chunked) {
    size_line = ChunkSizeLine(piece.size());
    end = last ? "\r\n0\r\n\r\n" : "\r\n";
  }
  channel_->WriteNow({head, size_line, piece, end});
  const bool is_sent = co_await channel_->WriteRest();
  co_return is_sent;
}

Awaitable<bool> Connection::Respond(const HttpResponse& response) {
  if (request_id_.empty()) request_id_ = RandomHexId();  // the head was not read, or refused
  shared_.CountResponse(response.status);
  const std::string head =
      ResponseHeadText(response, {parser_->version(), keep_alive_, response.body.size()},
                       request_id_, shared_.clock.Now());
  const std::string_view body = parser_->head().is_head ? std::string_view() : response.body;
  channel_->WriteNow({head, body});
  const bool is_sent = co_await channel_->WriteRest();
  co_return is_sent;
}

}  // namespace

std::shared_ptr<HttpConnection> ServeConnection(asio::io_context& io, int socket,
                                                HttpShared& shared,
                                                std::function<void(HttpConnection*)> on_end) {
  auto connection = std::make_shared<Connection>(io, socket, shared, std::move(on_end));
  connection->Start();
  return connection;
}

}  // namespace weightless::router
