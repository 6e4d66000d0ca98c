#include "router/http_channel.h"

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace weightless::router {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kReadBytes = 64 << 10;  // at once
// Reads that find bytes at once, after which the thread's other connections have their turn.
constexpr int kReadsAtOnce = 4;
constexpr size_t kMaxPipelinedBytes = 64 << 10;
constexpr size_t kMaxLingerBytes = 64 << 20;
constexpr absl::Duration kLingerTimeout = absl::Seconds(2);
// A whole answer may take write_timeout plus the time a reader of this speed needs.
constexpr double kSlowestReader = 64 << 10;  // bytes/s

}  // namespace

struct HttpChannel::Socket : tcp::socket {
  Socket(asio::io_context& io, int socket) : tcp::socket(io, tcp::v4(), socket) {}
};

HttpChannel::HttpChannel(asio::io_context& io, int socket, const HttpOptions& options,
                         const Clock& clock, const TlsContext* tls)
    : options_(options),
      clock_(clock),
      socket_(std::make_unique<Socket>(io, socket)),
      bytes_(socket, tls, options.send_buffer_bytes),
      waker_(std::make_shared<Waker>(io, [this] { event_.Set(); })) {}

HttpChannel::~HttpChannel() = default;

void HttpChannel::LimitReads(absl::Duration limit) { read_deadline_ = clock_.Now() + limit; }

void HttpChannel::Await(Waiting waiting, absl::Time deadline) {
  waiting_ = waiting;
  deadline_ = deadline;
  timed_out_ = false;
}

void HttpChannel::Tick(absl::Time now) {
  if (waiting_ == Waiting::kNothing || now < deadline_) return;
  if (waiting_ == Waiting::kWriting) return Close();
  timed_out_ = true;
  if (waiting_ == Waiting::kWake) return waker_->Wake();
  error_code ec;
  socket_->cancel(ec);
}

void HttpChannel::Close() {
  peer_left_ = true;
  bytes_.Abandon();
  error_code ec;
  socket_->close(ec);
  waker_->Wake();
}

void HttpChannel::End() {
  is_watched_ = false;
  waker_->Detach();
  if (!peer_left_) bytes_.Finish();
  error_code ec;
  socket_->close(ec);
}

// False at the end, or when the wait was cut off.
Awaitable<bool> HttpChannel::WaitFor(IoWait wait) {
  if (wait == IoWait::kNothing) co_return false;
  error_code ec;
  co_await socket_->async_wait(
      wait == IoWait::kReadable ? tcp::socket::wait_read : tcp::socket::wait_write,
      asio::redirect_error(use_awaitable, ec));
  co_return !ec;
}

Awaitable<HttpChannel::Session> HttpChannel::Handshake() {
  Await(Waiting::kReading, read_deadline_);
  for (bool is_ready = true; is_ready;) {
    const IoWait wait = bytes_.Handshake();
    is_ready = co_await WaitFor(wait);
  }
  AwaitNothing();
  if (bytes_.established()) co_return Session::kEstablished;
  co_return bytes_.OnHandshakeFailed(timed_out_) ? Session::kPlainHttp : Session::kNone;
}

// What has come counts, even if its time is over by now. An idle connection holds no buffer.
Awaitable<bool> HttpChannel::ReadSome() {
  static thread_local std::array<char, kReadBytes> scratch;
  if (++num_reads_at_once_ > kReadsAtOnce) {
    num_reads_at_once_ = 0;
    co_await asio::post(socket_->get_executor(), use_awaitable);
  }
  Await(Waiting::kReading, read_deadline_);
  size_t num_read = 0;
  for (bool is_ready = true; is_ready;) {
    const IoResult read = bytes_.Read(scratch);
    input_.append(scratch.data(), read.num_bytes);
    num_read = read.num_bytes;
    if (num_read > 0) break;
    num_reads_at_once_ = 0;
    is_ready = co_await WaitFor(read.wait);
  }
  AwaitNothing();
  co_return num_read > 0;
}

void HttpChannel::WriteNow(std::initializer_list<std::string_view> parts) {
  if (!bytes_.WriteParts(parts, rest_)) peer_left_ = true;
}

Awaitable<bool> HttpChannel::WriteRest() {
  if (peer_left_) co_return false;
  if (rest_.empty()) co_return true;
  const double slow_s = static_cast<double>(rest_.size()) / kSlowestReader;
  Await(Waiting::kWriting, clock_.Now() + options_.write_timeout + absl::Seconds(slow_s));
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

std::function<void()> HttpChannel::wake() const {
  return [waker = waker_] { waker->Wake(); };
}

Awaitable<bool> HttpChannel::WaitForWake(absl::Duration limit) {
  Await(Waiting::kWake, clock_.Now() + limit);
  if (!event_.Take()) {
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        [this](auto handler) { event_.Hold(std::move(handler)); }, use_awaitable);
    event_.Take();
  }
  AwaitNothing();
  co_return !timed_out_;
}

// docs/http_api.md says why the end of the input means that the client left, although it might only
// have ended its side.
void HttpChannel::Watch() {
  is_watched_ = true;
  if (!waits_for_input_) WaitForInput();
}

void HttpChannel::WaitForInput() {
  waits_for_input_ = true;
  socket_->async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    self->waits_for_input_ = false;
    if (self->is_watched_ && !ec) self->OnInput();
  });
}

void HttpChannel::OnInput() {
  if (input_.size() >= kMaxPipelinedBytes) return;
  std::array<char, 4096> scratch;
  const IoResult read = bytes_.Read(scratch);
  input_.append(scratch.data(), read.num_bytes);
  if (read.num_bytes == 0 && read.wait == IoWait::kNothing) {
    peer_left_ = true;
    event_.Set();
    return;
  }
  WaitForInput();
}

void HttpChannel::ReleaseBuffers() {
  rest_.clear();
  rest_.shrink_to_fit();
  if (input_.empty()) input_.shrink_to_fit();
}

Awaitable<void> HttpChannel::Linger() {
  bytes_.Finish();
  LimitReads(kLingerTimeout);
  bool is_sending = true;
  for (size_t total = 0; is_sending && total < kMaxLingerBytes; total += input_.size()) {
    input_.clear();
    const bool has_input = co_await ReadSome();
    is_sending = has_input && !timed_out_;
  }
}

}  // namespace weightless::router
