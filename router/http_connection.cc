#include "router/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <optional>
#include <vector>

#include "common/concat.h"
#include "common/log.h"
#include "router/api_error.h"
#include "router/http_head.h"
#include "router/http_wake.h"

namespace weightless::router {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::use_awaitable;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kReadBytes = 4096;          // of a header at first
constexpr size_t kBodyReadBytes = 64 << 10;  // of a body at once
constexpr size_t kMaxPipelinedBytes = 64 << 10;
constexpr size_t kMaxDiscardBytes = 64 << 10;  // of a refused body, to keep the connection
constexpr size_t kMaxLingerBytes = 1 << 20;
constexpr size_t kMaxParts = 4;              // of one write
constexpr size_t kSlowBodyBytes = 64 << 10;  // handled away from this thread from here on
constexpr absl::Duration kLingerTimeout = absl::Seconds(2);
// A whole answer may take write_timeout plus the time a reader of this speed needs.
constexpr double kSlowestReader = 64 << 10;  // bytes/s

// In the coroutines below every co_await stands in a statement of its own: GCC 12 loses the frame
// when one is a condition's operand.

// What a coroutine of one thread waits for: set at most once before it looks.
class Event {
 public:
  void Set() {
    set_ = true;
    if (const auto waiter = std::exchange(waiter_, nullptr)) waiter->Resume();
  }
  awaitable<void> Wait() {
    if (!set_) {
      co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
          [this](auto handler) {
            waiter_ = std::make_unique<WaiterOf<decltype(handler)>>(std::move(handler));
          },
          use_awaitable);
    }
    set_ = false;
  }

 private:
  struct Waiter {
    virtual ~Waiter() = default;
    virtual void Resume() = 0;
  };
  template <typename Handler>
  struct WaiterOf : Waiter {
    explicit WaiterOf(Handler&& h) : handler(std::move(h)) {}
    void Resume() override { std::move(handler)(); }
    Handler handler;
  };

  bool set_ = false;
  std::unique_ptr<Waiter> waiter_;
};

class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, int socket, HttpShared& shared,
             std::function<void(HttpConnection*)> on_end)
      : io_(io), socket_(io), shared_(shared), on_end_(std::move(on_end)) {
    error_code ec;
    socket_.assign(tcp::v4(), socket, ec);
    socket_.non_blocking(true, ec);
    socket_.set_option(tcp::no_delay(true), ec);
    socket_.set_option(asio::socket_base::keep_alive(true), ec);
    if (shared.options.send_buffer_bytes > 0) {
      socket_.set_option(asio::socket_base::send_buffer_size(shared.options.send_buffer_bytes), ec);
    }
  }

  void Start() {
    waker_ = std::make_shared<Waker>(io_, [this] { event_.Set(); });
    asio::co_spawn(io_, Hold(shared_from_this()),
                   [self = shared_from_this()](std::exception_ptr) { self->End(); });
  }

  void Tick(absl::Time now) override;
  void Close() override;

 private:
  enum class Waiting { kNothing, kReading, kWriting, kSilence };
  using Parser = http::request_parser<http::string_body>;

  static awaitable<void> Hold(std::shared_ptr<Connection> self) { co_await self->Run(); }
  awaitable<void> Run();
  void End();

  awaitable<bool> ReadRequest();
  awaitable<bool> ReadHeader();
  awaitable<bool> ReadBody();
  awaitable<size_t> ReadSome(size_t max_bytes);
  awaitable<bool> CheckHead();
  awaitable<bool> RefuseHead(HttpResponse refusal);
  awaitable<void> RefuseAndClose(HttpResponse refusal);
  awaitable<void> RefuseParse(error_code ec);
  awaitable<void> RefuseLate(std::string_view what, absl::Duration limit);

  awaitable<void> AnswerRequest();
  awaitable<Answer> Handle();
  awaitable<void> Pump(Reply& reply);
  awaitable<bool> Respond(const HttpResponse& response);
  awaitable<bool> SendPiece(std::string_view piece, bool last);
  void WriteNow(std::initializer_list<std::string_view> parts);
  awaitable<bool> WriteRest();
  awaitable<void> Linger();

  void Watch();
  void OnReadable();
  void Await(Waiting waiting, absl::Duration timeout) {
    waiting_ = waiting;
    deadline_ = shared_.clock.Now() + timeout;
  }
  void AwaitNothing() { waiting_ = Waiting::kNothing; }
  void CountResponse(int status);

  asio::io_context& io_;
  tcp::socket socket_;
  HttpShared& shared_;
  const std::function<void(HttpConnection*)> on_end_;

  beast::flat_buffer buffer_;  // read and not parsed yet
  std::optional<Parser> parser_;
  RequestHead head_;
  int version_ = 11;

  std::shared_ptr<Waker> waker_;
  Event event_;
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
  while (keep_alive_ && !peer_left_) {
    const bool has_request = co_await ReadRequest();
    if (!has_request) break;
    co_await AnswerRequest();
  }
  if (lingers_ && !peer_left_) co_await Linger();
}

void Connection::End() {
  waker_->Detach();
  error_code ec;
  socket_.close(ec);
  on_end_(this);
}

void Connection::Close() {
  peer_left_ = true;
  error_code ec;
  socket_.close(ec);
  waker_->Wake();
}

void Connection::Tick(absl::Time now) {
  if (waiting_ == Waiting::kNothing || now < deadline_) return;
  error_code ec;
  switch (std::exchange(waiting_, Waiting::kNothing)) {
    case Waiting::kReading:
      timed_out_ = true;
      socket_.cancel(ec);
      return;
    case Waiting::kWriting:
      Close();
      return;
    case Waiting::kSilence:
      silence_ = true;
      waker_->Wake();
      return;
    case Waiting::kNothing:
      return;
  }
}

// Reads one request and keeps its parts in head_. False: there is none, or it has been refused and
// the connection ends. A refusal that lets the connection live reads the next one.
awaitable<bool> Connection::ReadRequest() {
  for (;;) {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
    parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body_bytes));
    timed_out_ = false;
    const bool has_header = co_await ReadHeader();
    if (!has_header) co_return false;
    const bool is_accepted = co_await CheckHead();
    if (!is_accepted) {
      if (!keep_alive_ || peer_left_) co_return false;
      continue;
    }
    const bool has_body = co_await ReadBody();
    if (!has_body) co_return false;
    head_.request.body = std::move(parser_->get().body());
    head_.request.received_at = shared_.clock.Now();
    if (buffer_.size() == 0 && buffer_.capacity() > 2 * kReadBytes) buffer_ = beast::flat_buffer();
    co_return true;
  }
}

awaitable<size_t> Connection::ReadSome(size_t max_bytes) {
  const auto space = buffer_.prepare(max_bytes);
  error_code ec;
  size_t num_bytes = socket_.read_some(space, ec);
  if (ec == asio::error::would_block) {
    num_bytes = co_await socket_.async_read_some(space, asio::redirect_error(use_awaitable, ec));
  }
  buffer_.commit(num_bytes);
  co_return num_bytes;
}

awaitable<bool> Connection::ReadHeader() {
  head_ = {};
  if (buffer_.size() == 0) {
    Await(Waiting::kReading, shared_.options.idle_timeout);
    const size_t num_bytes = co_await ReadSome(kReadBytes);
    if (num_bytes == 0) co_return false;
  }
  Await(Waiting::kReading, shared_.options.header_timeout);
  error_code ec;
  for (;;) {
    buffer_.consume(parser_->put(buffer_.data(), ec));
    if (ec && ec != http::error::need_more) {
      co_await RefuseParse(ec);
      co_return false;
    }
    if (parser_->is_header_done()) break;
    const size_t num_bytes = co_await ReadSome(kReadBytes);
    if (timed_out_) co_await RefuseLate("header", shared_.options.header_timeout);
    if (timed_out_ || num_bytes == 0) co_return false;
  }
  AwaitNothing();
  co_return true;
}

// Looks at a complete header: what the grammar allows and we do not, then what the routes say.
// False when the request has been refused.
awaitable<bool> Connection::CheckHead() {
  const auto& message = parser_->get();
  version_ = static_cast<int>(message.version());
  keep_alive_ = parser_->keep_alive() && !shared_.draining;
  std::vector<HeaderField> fields;
  for (const auto& field : message) {
    fields.push_back({{field.name_string().data(), field.name_string().size()},
                      {field.value().data(), field.value().size()}});
  }
  if (fields.size() > static_cast<size_t>(shared_.options.max_header_fields)) {
    HttpResponse refusal =
        RefusalResponse(431, "header_too_large",
                        Concat("the header has ", fields.size(), " fields, more than ",
                               shared_.options.max_header_fields));
    co_await RefuseAndClose(std::move(refusal));
    co_return false;
  }
  const std::string_view method(message.method_string().data(), message.method_string().size());
  const std::string_view target(message.target().data(), message.target().size());
  absl::StatusOr<RequestHead> head = ReadRequestHead({method, target, version_, fields});
  if (!head.ok()) {
    HttpResponse refusal = ErrorResponse(head.status());
    if (head.status().code() == absl::StatusCode::kUnimplemented) refusal.status = 417;
    co_await RefuseAndClose(std::move(refusal));
    co_return false;
  }
  head_ = *std::move(head);
  if (auto refusal = shared_.handler.CheckHead(head_.request)) {
    co_await RefuseHead(*std::move(refusal));
    co_return false;
  }
  co_return true;
}

// Answers before the body is read. A short body is then skipped, for a long one it is not worth it.
awaitable<bool> Connection::RefuseHead(HttpResponse refusal) {
  const auto length = parser_->content_length();
  const bool is_short = parser_->is_done() || (length && *length <= kMaxDiscardBytes);
  if (!is_short || head_.expects_continue) {
    co_await RefuseAndClose(std::move(refusal));
    co_return false;
  }
  const bool has_body = co_await ReadBody();
  if (!has_body) co_return false;
  const bool is_sent = co_await Respond(refusal);
  co_return is_sent;
}

awaitable<void> Connection::RefuseAndClose(HttpResponse refusal) {
  keep_alive_ = false;
  lingers_ = true;
  co_await Respond(refusal);
}

awaitable<void> Connection::RefuseParse(error_code ec) {
  if (ec == http::error::body_limit) {
    return RefuseAndClose(RefusalResponse(
        413, "body_too_large",
        Concat("the body is larger than ", shared_.options.max_body_bytes, " bytes")));
  }
  if (ec == http::error::header_limit) {
    return RefuseAndClose(RefusalResponse(
        431, "header_too_large",
        Concat("the header is larger than ", shared_.options.max_header_bytes, " bytes")));
  }
  return RefuseAndClose(
      RefusalResponse(400, "bad_request", Concat("not an HTTP request: ", ec.message())));
}

awaitable<void> Connection::RefuseLate(std::string_view what, absl::Duration limit) {
  return RefuseAndClose(RefusalResponse(
      408, "request_timeout",
      Concat("the ", what, " was not complete after ", absl::ToDoubleSeconds(limit), " s")));
}

awaitable<bool> Connection::ReadBody() {
  if (parser_->is_done()) co_return true;
  Await(Waiting::kReading, shared_.options.body_timeout);
  if (head_.expects_continue && buffer_.size() == 0) {
    WriteNow({"HTTP/1.1 100 Continue\r\n\r\n"});
    const bool is_sent = co_await WriteRest();
    if (!is_sent) co_return false;
    Await(Waiting::kReading, shared_.options.body_timeout);
  }
  error_code ec;
  while (!parser_->is_done()) {
    if (buffer_.size() > 0) {
      buffer_.consume(parser_->put(buffer_.data(), ec));
      if (!ec) continue;
      if (ec != http::error::need_more || buffer_.size() > kBodyReadBytes) {
        co_await RefuseParse(ec);
        co_return false;
      }
    }
    const size_t num_bytes = co_await ReadSome(kBodyReadBytes);
    if (timed_out_) co_await RefuseLate("body", shared_.options.body_timeout);
    if (timed_out_ || num_bytes == 0) co_return false;
  }
  AwaitNothing();
  co_return true;
}

awaitable<Answer> Connection::Handle() {
  std::function<void()> wake = [waker = waker_] { waker->Wake(); };
  if (head_.request.body.size() < kSlowBodyBytes) {
    co_return shared_.handler.Handle(std::move(head_.request), std::move(wake));
  }
  Answer answer = co_await asio::co_spawn(
      shared_.slow_pool,
      [this, &wake]() -> awaitable<Answer> {
        co_return shared_.handler.Handle(std::move(head_.request), std::move(wake));
      },
      use_awaitable);
  co_return answer;
}

awaitable<void> Connection::AnswerRequest() {
  shared_.active.Enter();
  head_sent_ = false;
  const std::string request_id = head_.request.request_id;
  Answer answer = co_await Handle();
  head_.request.request_id = request_id;
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
    co_await event_.Wait();
    AwaitNothing();
  }
  keep_alive_ = false;
}

// One chunk of a stream, after the head if that has not been sent.
awaitable<bool> Connection::SendPiece(std::string_view piece, bool last) {
  std::string head;
  if (!std::exchange(head_sent_, true)) {
    HttpResponse response;
    response.content_type = "text/event-stream; charset=utf-8";
    response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    keep_alive_ = keep_alive_ && version_ >= 11;
    head = ResponseHeadText(response, {version_, keep_alive_, std::nullopt},
                            head_.request.request_id, shared_.clock.Now());
    CountResponse(200);
  }
  std::array<char, 18> size_line;
  size_t size_line_len = 0;
  std::string_view end;
  if (version_ >= 11) {
    char* const size_end =
        std::to_chars(size_line.data(), size_line.data() + 16, piece.size(), 16).ptr;
    size_end[0] = '\r';
    size_end[1] = '\n';
    size_line_len = static_cast<size_t>(size_end + 2 - size_line.data());
    end = last ? "\r\n0\r\n\r\n" : "\r\n";
  }
  const std::string_view size_text(size_line.data(), size_line_len);
  WriteNow({head, size_text, piece, end});
  const bool is_sent = co_await WriteRest();
  co_return is_sent;
}

awaitable<bool> Connection::Respond(const HttpResponse& response) {
  CountResponse(response.status);
  const std::string head = ResponseHeadText(response, {version_, keep_alive_, response.body.size()},
                                            head_.request.request_id, shared_.clock.Now());
  const std::string_view body = head_.is_head ? std::string_view() : response.body;
  WriteNow({head, body});
  const bool is_sent = co_await WriteRest();
  co_return is_sent;
}

// Writes at most kMaxParts parts without waiting; what does not go now is in rest_.
void Connection::WriteNow(std::initializer_list<std::string_view> parts) {
  std::array<asio::const_buffer, kMaxParts> buffers;
  std::transform(parts.begin(), parts.end(), buffers.begin(),
                 [](std::string_view part) { return asio::buffer(part); });
  error_code ec;
  size_t num_written = socket_.write_some(buffers, ec);
  rest_.clear();
  if (ec && ec != asio::error::would_block) {
    peer_left_ = true;
    return;
  }
  for (const std::string_view part : parts) {
    const size_t skipped = std::min(num_written, part.size());
    rest_.append(part.substr(skipped));
    num_written -= skipped;
  }
}

awaitable<bool> Connection::WriteRest() {
  if (peer_left_) co_return false;
  if (rest_.empty()) co_return true;
  const double slow_s = static_cast<double>(rest_.size()) / kSlowestReader;
  Await(Waiting::kWriting, shared_.options.write_timeout + absl::Seconds(slow_s));
  error_code ec;
  co_await asio::async_write(socket_, asio::buffer(rest_), asio::redirect_error(use_awaitable, ec));
  AwaitNothing();
  if (ec) peer_left_ = true;
  co_return !ec;
}

// Lets the client read a refusal before the connection is reset under what it still sends.
awaitable<void> Connection::Linger() {
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  timed_out_ = false;
  Await(Waiting::kReading, kLingerTimeout);
  buffer_.clear();
  size_t total = 0;
  while (!timed_out_ && total < kMaxLingerBytes) {
    const size_t num_bytes = co_await ReadSome(kBodyReadBytes);
    if (num_bytes == 0) break;
    total += num_bytes;
    buffer_.clear();
  }
  AwaitNothing();
}

// While a reply is under way the client's side is watched: its end means that the client left,
// more input is the next request.
void Connection::Watch() {
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    self->watching_ = false;
    if (self->pumping_ && !ec) self->OnReadable();
  });
}

void Connection::OnReadable() {
  if (buffer_.size() >= kMaxPipelinedBytes) return;
  error_code ec;
  const size_t num_bytes = socket_.read_some(buffer_.prepare(kReadBytes), ec);
  buffer_.commit(num_bytes);
  if (ec && ec != asio::error::would_block) {
    peer_left_ = true;
    event_.Set();
    return;
  }
  Watch();
}

void Connection::CountResponse(int status) {
  RouterMetrics& metrics = shared_.metrics;
  (status < 400   ? metrics.responses_2xx
   : status < 500 ? metrics.responses_4xx
                  : metrics.responses_5xx)
      .Add();
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
