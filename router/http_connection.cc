#include "router/http_connection.h"

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "common/concat.h"
#include "router/api_error.h"
#include "router/coroutine_event.h"
#include "router/http_head.h"
#include "router/http_parser.h"
#include "router/http_socket.h"
#include "router/http_wake.h"
#include "router/random_id.h"

namespace weightless::router {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kReadBytes = 64 << 10;  // at once
constexpr size_t kMaxPipelinedBytes = 64 << 10;
constexpr size_t kMaxDiscardBytes = 64 << 10;  // of a refused body, to keep the connection
constexpr size_t kMaxLingerBytes = 64 << 20;
constexpr size_t kSlowBodyBytes = 64 << 10;  // handled away from this thread from here on
constexpr absl::Duration kLingerTimeout = absl::Seconds(2);
// A whole answer may take write_timeout plus the time a reader of this speed needs.
constexpr double kSlowestReader = 64 << 10;  // bytes/s

// In the coroutines below every co_await stands in a statement of its own: GCC 12 loses the frame
// when one is a condition's operand.

class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, int socket, HttpShared& shared,
             std::function<void(HttpConnection*)> on_end)
      : io_(io),
        socket_(io, tcp::v4(), socket),
        bytes_(socket, shared.tls, shared.options.send_buffer_bytes),
        shared_(shared),
        on_end_(std::move(on_end)) {}

  void Start() {
    waker_ = std::make_shared<Waker>(io_, [this] { event_.Set(); });
    asio::co_spawn(io_, Hold(shared_from_this()),
                   [self = shared_from_this()](std::exception_ptr) { self->End(); });
  }

  void Tick(absl::Time now) override;
  void Close() override;

 private:
  enum class Waiting { kNothing, kReading, kWriting, kSilence };

  static awaitable<void> Hold(std::shared_ptr<Connection> self) { co_await self->Run(); }
  awaitable<void> Run();
  void End();

  awaitable<bool> Handshake();
  awaitable<bool> ReadRequest();
  awaitable<bool> ReadHeader();
  awaitable<bool> ReadBody();
  awaitable<bool> ReadMore(std::string_view what, absl::Duration limit);
  awaitable<bool> ReadSome();
  bool Parse();
  awaitable<bool> RefuseHead(HttpResponse refusal);
  awaitable<void> RefuseAndClose(HttpResponse refusal);

  awaitable<void> AnswerRequest();
  awaitable<Answer> Handle();
  awaitable<void> Pump(Reply& reply);
  awaitable<bool> Respond(const HttpResponse& response);
  awaitable<bool> SendPiece(std::string_view piece, bool last);
  void WriteNow(std::initializer_list<std::string_view> parts);
  awaitable<bool> WriteRest();
  awaitable<void> Linger();
  awaitable<bool> WaitFor(IoWait wait);
  awaitable<void> WaitForEvent();

  void Watch();
  void OnReadable();
  void Await(Waiting waiting, absl::Duration timeout) {
    waiting_ = waiting;
    deadline_ = shared_.clock.Now() + timeout;
  }
  void AwaitNothing() { waiting_ = Waiting::kNothing; }

  asio::io_context& io_;
  tcp::socket socket_;  // owns it and waits for it
  HttpSocket bytes_;    // reads and writes
  HttpShared& shared_;
  const std::function<void(HttpConnection*)> on_end_;

  std::string input_;  // read and not parsed yet
  std::optional<HttpParser> parser_;
  std::string request_id_;

  std::shared_ptr<Waker> waker_;
  CoroutineEvent event_;
  Waiting waiting_ = Waiting::kNothing;
  absl::Time deadline_;
  std::string out_;   // one Advance's bytes
  std::string rest_;  // what a write has left
  bool head_sent_ = false;
  bool keep_alive_ = true;  // after the current answer
  bool lingers_ = false;    // the client may still be sending when the connection ends
  bool pumping_ = false;    // a Reply is under way
  bool watching_ = false;   // an async_wait for input is pending
  bool silence_ = false;    // nothing has been sent for keep_alive_interval
  bool timed_out_ = false;  // a read took too long
  bool peer_left_ = false;  // or we are closing
};

awaitable<void> Connection::Run() {
  if (bytes_.has_tls()) {
    const bool is_established = co_await Handshake();
    keep_alive_ = is_established;
  }
  while (keep_alive_ && !peer_left_) {
    const bool has_request = co_await ReadRequest();
    if (!has_request) break;
    co_await AnswerRequest();
  }
  if (lingers_ && !peer_left_) co_await Linger();
}

void Connection::End() {
  waker_->Detach();
  if (!peer_left_) bytes_.Finish();
  error_code ec;
  socket_.close(ec);
  on_end_(this);
}

void Connection::Close() {
  peer_left_ = true;
  bytes_.Abandon();
  error_code ec;
  socket_.close(ec);
  waker_->Wake();
}

void Connection::Tick(absl::Time now) {
  if (waiting_ == Waiting::kNothing || now < deadline_) return;
  const Waiting overdue = std::exchange(waiting_, Waiting::kNothing);
  if (overdue == Waiting::kWriting) return Close();
  if (overdue == Waiting::kSilence) {
    silence_ = true;
    return waker_->Wake();
  }
  timed_out_ = true;
  error_code ec;
  socket_.cancel(ec);
}

// False when there is no session. A client that speaks HTTP in the clear is told so.
awaitable<bool> Connection::Handshake() {
  Await(Waiting::kReading, shared_.options.header_timeout);
  for (bool is_ready = true; is_ready;) {
    const IoWait wait = bytes_.Handshake();
    is_ready = co_await WaitFor(wait);
  }
  AwaitNothing();
  if (bytes_.established()) co_return true;
  if (bytes_.OnHandshakeFailed(timed_out_)) {
    parser_.emplace(shared_.options);
    HttpResponse refusal = RefusalResponse(400, "bad_request", "this port speaks HTTPS only");
    co_await RefuseAndClose(std::move(refusal));
  }
  co_return false;
}

// Reads one request. False: there is none, or it has been refused and the connection ends. A
// refusal that lets the connection live reads the next one.
awaitable<bool> Connection::ReadRequest() {
  for (;;) {
    parser_.emplace(shared_.options);
    request_id_.clear();
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
    if (input_.empty()) input_.shrink_to_fit();
    co_return true;
  }
}

awaitable<bool> Connection::ReadHeader() {
  // Empty lines before a request are ignored (RFC 9112, 2.2).
  const auto skip_empty_lines = [this] {
    while (input_.starts_with("\r\n")) input_.erase(0, 2);
    return input_.empty() || input_ == "\r";
  };
  Await(Waiting::kReading, shared_.options.idle_timeout);
  while (skip_empty_lines()) {
    const bool has_input = co_await ReadSome();
    if (!has_input) co_return false;
  }
  Await(Waiting::kReading, shared_.options.header_timeout);
  while (Parse() && parser_->state() == HttpParser::State::kHeader) {
    const bool has_input = co_await ReadMore("header", shared_.options.header_timeout);
    if (!has_input) co_return false;
  }
  AwaitNothing();
  if (parser_->state() != HttpParser::State::kRefused) co_return true;
  HttpResponse refusal = parser_->refusal();
  co_await RefuseAndClose(std::move(refusal));
  co_return false;
}

awaitable<bool> Connection::ReadBody() {
  Await(Waiting::kReading, shared_.options.body_timeout);
  if (parser_->state() == HttpParser::State::kBody && parser_->head().expects_continue &&
      input_.empty()) {
    WriteNow({"HTTP/1.1 100 Continue\r\n\r\n"});
    const bool is_sent = co_await WriteRest();
    if (!is_sent) co_return false;
    Await(Waiting::kReading, shared_.options.body_timeout);
  }
  while (parser_->state() == HttpParser::State::kBody) {
    if (Parse() && parser_->state() == HttpParser::State::kBody) {
      const bool has_input = co_await ReadMore("body", shared_.options.body_timeout);
      if (!has_input) co_return false;
    }
  }
  AwaitNothing();
  if (parser_->state() == HttpParser::State::kDone) co_return true;
  HttpResponse refusal = parser_->refusal();
  co_await RefuseAndClose(std::move(refusal));
  co_return false;
}

// Parses what has been read. False when the request is refused.
bool Connection::Parse() {
  input_.erase(0, parser_->Read(input_));
  return parser_->state() != HttpParser::State::kRefused;
}

// False when the client has gone, or was late and has been told.
awaitable<bool> Connection::ReadMore(std::string_view what, absl::Duration limit) {
  const bool has_input = co_await ReadSome();
  if (timed_out_) {
    HttpResponse refusal = RefusalResponse(
        408, "request_timeout",
        Concat("the ", what, " was not complete after ", absl::ToDoubleSeconds(limit), " s"));
    co_await RefuseAndClose(std::move(refusal));
  }
  co_return has_input && !timed_out_;
}

// Appends to input_; false at the end of the input. An idle connection holds no buffer.
awaitable<bool> Connection::ReadSome() {
  static thread_local std::array<char, kReadBytes> scratch;
  for (;;) {
    const IoResult read = bytes_.Read(scratch);
    input_.append(scratch.data(), read.num_bytes);
    if (read.num_bytes > 0) co_return true;
    const bool is_ready = co_await WaitFor(read.wait);
    if (!is_ready) co_return false;
  }
}

// False at the end, or when the wait was cut off.
awaitable<bool> Connection::WaitFor(IoWait wait) {
  if (wait == IoWait::kNothing) co_return false;
  error_code ec;
  co_await socket_.async_wait(
      wait == IoWait::kReadable ? tcp::socket::wait_read : tcp::socket::wait_write,
      asio::redirect_error(use_awaitable, ec));
  co_return !ec;
}

awaitable<void> Connection::WaitForEvent() {
  if (event_.Take()) co_return;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [this](auto handler) { event_.Hold(std::move(handler)); }, use_awaitable);
  event_.Take();
}

// Answers before the body is read; false when the connection ends with that. A short body is
// skipped, for a long one it is not worth it.
awaitable<bool> Connection::RefuseHead(HttpResponse refusal) {
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

awaitable<void> Connection::RefuseAndClose(HttpResponse refusal) {
  keep_alive_ = false;
  lingers_ = true;
  co_await Respond(refusal);
}

awaitable<Answer> Connection::Handle() {
  std::function<void()> wake = [waker = waker_] { waker->Wake(); };
  HttpRequest request = std::exchange(parser_->head().request, {});
  if (request.body.size() < kSlowBodyBytes) {
    co_return shared_.handler.Handle(std::move(request), std::move(wake));
  }
  Answer answer = co_await asio::co_spawn(
      shared_.slow_pool,
      [this, &request, &wake]() -> awaitable<Answer> {
        co_return shared_.handler.Handle(std::move(request), std::move(wake));
      },
      use_awaitable);
  co_return answer;
}

awaitable<void> Connection::AnswerRequest() {
  shared_.active.Enter();
  head_sent_ = false;
  Answer answer = co_await Handle();
  if (const auto* response = std::get_if<HttpResponse>(&answer)) {
    const bool is_sent = co_await Respond(*response);
    keep_alive_ = keep_alive_ && is_sent;
  } else {
    pumping_ = true;
    if (!watching_) Watch();
    co_await Pump(*std::get<std::unique_ptr<Reply>>(answer));
    pumping_ = false;
  }
  answer = HttpResponse();  // a Reply that is not done learns that the client left
  shared_.active.Leave();
}

// Sends what the reply brings as it comes, until it is done or the client leaves.
awaitable<void> Connection::Pump(Reply& reply) {
  while (!peer_left_) {
    out_.clear();
    Reply::Progress progress = reply.Advance(out_);
    if (progress.whole) {
      const bool is_sent = co_await Respond(*progress.whole);
      keep_alive_ = keep_alive_ && is_sent;
      if (is_sent) reply.OnWritten(shared_.clock.Now());
      co_return;
    }
    if (std::exchange(silence_, false) && out_.empty() && !progress.done) {
      progress.streaming = reply.KeepAlive(out_);
    }
    if (progress.streaming && (!out_.empty() || progress.done)) {
      const bool is_sent = co_await SendPiece(out_, progress.done);
      if (!is_sent) break;
      reply.OnWritten(shared_.clock.Now());
    }
    if (progress.done) co_return;
    Await(Waiting::kSilence, shared_.options.keep_alive_interval);
    co_await WaitForEvent();
    AwaitNothing();
  }
  keep_alive_ = false;
}

// One chunk of a stream, after the head if that has not been sent.
awaitable<bool> Connection::SendPiece(std::string_view piece, bool last) {
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
  WriteNow({head, size_line, piece, end});
  const bool is_sent = co_await WriteRest();
  co_return is_sent;
}

awaitable<bool> Connection::Respond(const HttpResponse& response) {
  if (request_id_.empty()) request_id_ = RandomHexId();  // the head was not read, or refused
  shared_.CountResponse(response.status);
  const std::string head =
      ResponseHeadText(response, {parser_->version(), keep_alive_, response.body.size()},
                       request_id_, shared_.clock.Now());
  const std::string_view body = parser_->head().is_head ? std::string_view() : response.body;
  WriteNow({head, body});
  const bool is_sent = co_await WriteRest();
  co_return is_sent;
}

// Writes without waiting; what does not go now is in rest_.
void Connection::WriteNow(std::initializer_list<std::string_view> parts) {
  if (!bytes_.WriteParts(parts, rest_)) peer_left_ = true;
}

awaitable<bool> Connection::WriteRest() {
  if (peer_left_) co_return false;
  if (rest_.empty()) co_return true;
  const double slow_s = static_cast<double>(rest_.size()) / kSlowestReader;
  Await(Waiting::kWriting, shared_.options.write_timeout + absl::Seconds(slow_s));
  for (std::string_view left = rest_; !left.empty();) {
    const IoResult written = bytes_.Write(left);
    left.remove_prefix(written.num_bytes);
    if (written.num_bytes > 0) continue;
    const bool is_ready = co_await WaitFor(written.wait);
    if (is_ready) continue;
    peer_left_ = true;
    break;
  }
  AwaitNothing();
  co_return !peer_left_;
}

// Lets the client read a refusal before the connection is reset under what it still sends.
awaitable<void> Connection::Linger() {
  bytes_.Finish();
  timed_out_ = false;
  Await(Waiting::kReading, kLingerTimeout);
  for (size_t total = 0; !timed_out_ && total < kMaxLingerBytes; total += input_.size()) {
    input_.clear();
    const bool has_input = co_await ReadSome();
    if (!has_input) break;
  }
  AwaitNothing();
}

// While a reply is under way the client's side is watched: its end means that the client left
// (docs/http_api.md says why, although it might only have ended its side), more input is the next
// request.
void Connection::Watch() {
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    self->watching_ = false;
    if (self->pumping_ && !ec) self->OnReadable();
  });
}

void Connection::OnReadable() {
  if (input_.size() >= kMaxPipelinedBytes) return;
  std::array<char, 4096> scratch;
  const IoResult read = bytes_.Read(scratch);
  input_.append(scratch.data(), read.num_bytes);
  if (read.num_bytes == 0 && read.wait == IoWait::kNothing) {
    peer_left_ = true;
    event_.Set();
    return;
  }
  Watch();
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
