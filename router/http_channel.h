// One client connection below HTTP: its bytes, in the clear or under TLS, how long each wait may
// take, and whether the client is still there.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/clock.h"
#include "router/coroutine_event.h"
#include "router/http_options.h"
#include "router/http_socket.h"
#include "router/http_wake.h"

namespace boost::asio {
class any_io_executor;
class io_context;
template <typename T, typename Executor>
class awaitable;
}  // namespace boost::asio

namespace weightless::router {

// What a coroutine returns.
template <typename T>
using Awaitable = boost::asio::awaitable<T, boost::asio::any_io_executor>;

// Owned by the thread that runs its io_context; every call is made there, and one coroutine at a
// time waits in it. Shared, since the wait that Watch begins may outlive its user.
class HttpChannel : public std::enable_shared_from_this<HttpChannel> {
 public:
  enum class Session { kEstablished, kPlainHttp, kNone };

  // Takes over `socket`, which is connected. `tls` null: in the clear. The rest outlives this.
  HttpChannel(boost::asio::io_context& io, int socket, const HttpOptions& options,
              const Clock& clock, const TlsContext* tls);
  ~HttpChannel();

  // Handshake and reads that end later than this from now are cut off.
  void LimitReads(absl::Duration limit);
  // Requires TLS. kPlainHttp: there is no session, and what is written goes out in the clear.
  Awaitable<Session> Handshake();
  // Appends to input(). False at the end of the input, and when the time is over.
  Awaitable<bool> ReadSome();
  // Whether the last wait took too long.
  bool timed_out() const { return timed_out_; }
  // What has been read; whoever uses it takes it out.
  std::string& input() { return input_; }

  // Writes what goes without waiting; WriteRest has to follow.
  void WriteNow(std::initializer_list<std::string_view> parts);
  // False when the client has left. One that does not read for too long is cut off.
  Awaitable<bool> WriteRest();

  // Ends WaitForWake, now or the next one. Thread-safe, harmless after the end of this.
  std::function<void()> wake() const;
  // False when nothing has come for so long.
  Awaitable<bool> WaitForWake(absl::Duration limit);

  // Until Unwatch the client's side is watched: more input is read, and its end means that the
  // client has left, which wakes.
  void Watch();
  void Unwatch() { is_watched_ = false; }
  bool peer_left() const { return peer_left_; }

  // Gives the memory of empty buffers back. Nothing is being written.
  void ReleaseBuffers();
  // Sends nothing more and, for a while, lets the client read before the connection is reset under
  // what it still sends.
  Awaitable<void> Linger();

  // Acts on what is overdue.
  void Tick(absl::Time now);
  // As if the client had left.
  void Close();
  // Once, when no coroutine uses it any more.
  void End();

 private:
  enum class Waiting { kNothing, kReading, kWriting, kWake };
  struct Socket;

  void Await(Waiting waiting, absl::Time deadline);
  void AwaitNothing() { waiting_ = Waiting::kNothing; }
  Awaitable<bool> WaitFor(IoWait wait);
  void WaitForInput();
  void OnInput();

  const HttpOptions& options_;
  const Clock& clock_;
  const std::unique_ptr<Socket> socket_;  // owns the descriptor and waits for it
  HttpSocket bytes_;                      // reads and writes
  const std::shared_ptr<Waker> waker_;
  CoroutineEvent event_;

  std::string input_;
  std::string rest_;  // what a write has left
  absl::Time read_deadline_;
  int num_reads_at_once_ = 0;  // in a row, without a wait
  Waiting waiting_ = Waiting::kNothing;
  absl::Time deadline_;     // of what is awaited
  bool timed_out_ = false;  // it has passed
  bool is_watched_ = false;
  bool waits_for_input_ = false;  // Watch's wait is pending
  bool peer_left_ = false;        // or we are closing
};

}  // namespace weightless::router
