#include "tests/router/http_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "common/check.h"
#include "common/concat.h"

namespace weightless::router {
namespace {

constexpr int kPatienceMs = 20000;

RouterConfig TestConfig(RouterConfig config) {
  config.http.tick = absl::Milliseconds(5);
  return config;
}

std::unique_ptr<TlsContext> LoadTls(const RouterConfig& config) {
  if (config.tls_cert_file.empty()) return nullptr;
  signal(SIGPIPE, SIG_IGN);  // as the program does
  auto tls = TlsContext::Load(config.tls_cert_file, config.tls_key_file, absl::Now());
  CHECK(tls.ok());
  return *std::move(tls);
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

TestServer::TestServer(RouterConfig router_config, ApiKeys keys)
    : config(TestConfig(std::move(router_config))),
      dispatcher(TinyModel()),
      routes(config, std::move(keys), dispatcher, clock, metrics),
      tls(LoadTls(config)),
      server(config.http, routes, clock, metrics, tls.get()) {
  clock.Advance(absl::Seconds(1700000000));
  const absl::Status status = server.Listen("127.0.0.1", 0);
  CHECK(status.ok());
}

HttpClient::HttpClient(int port, int receive_buffer_bytes) {
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

HttpClient::HttpClient(const TestServer& server, int receive_buffer_bytes, Speaks speaks)
    : HttpClient(server.server.port(), receive_buffer_bytes) {
  if (server.tls == nullptr || speaks == Speaks::kInTheClear) return;
  context_ = SSL_CTX_new(TLS_client_method());
  session_ = SSL_new(context_);
  SSL_set_fd(session_, socket_);
  EXPECT_EQ(SSL_connect(session_), 1);
}

HttpClient::~HttpClient() {
  SSL_free(session_);
  SSL_CTX_free(context_);
  if (socket_ >= 0) close(socket_);
}

std::string HttpClient::CertificateName() const {
  X509* certificate = SSL_get1_peer_certificate(session_);
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
  X509_free(certificate);
  return name;
}

std::string HttpClient::Protocol() const { return SSL_get_version(session_); }

void HttpClient::EndInput() { shutdown(socket_, SHUT_WR); }

void HttpClient::Leave(bool hard) {
  const linger reset{.l_onoff = 1, .l_linger = 0};
  if (hard) setsockopt(socket_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(socket_);
  socket_ = -1;
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = session_ != nullptr
                             ? SSL_write(session_, bytes.data(), static_cast<int>(bytes.size()))
                             : send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 || (sent == 0 && session_ != nullptr)) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Whether bytes, or the end, come in time. A session's own messages are no bytes.
bool HttpClient::IsReadable(int timeout_ms) {
  const absl::Time deadline = absl::Now() + absl::Milliseconds(timeout_ms);
  do {
    pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
    if (session_ != nullptr && SSL_pending(session_) > 0) return true;
    if (poll(&waiting, 1, timeout_ms) == 0) return false;
    if (session_ == nullptr) return true;
    char byte = 0;
    const int flags = fcntl(socket_, F_GETFL);
    fcntl(socket_, F_SETFL, flags | O_NONBLOCK);
    const int peeked = SSL_peek(session_, &byte, 1);
    fcntl(socket_, F_SETFL, flags);
    if (peeked == 1 || SSL_get_error(session_, peeked) != SSL_ERROR_WANT_READ) return true;
  } while (absl::Now() < deadline);
  return false;
}

// More bytes into the buffer; false at the end.
bool HttpClient::Fill() {
  if (!IsReadable(kPatienceMs)) {
    ADD_FAILURE() << "nothing came for long; so far: " << buffer_;
    return false;
  }
  char bytes[65536];
  const ssize_t received = session_ != nullptr ? SSL_read(session_, bytes, sizeof(bytes))
                                               : recv(socket_, bytes, sizeof(bytes), 0);
  if (received <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(received));
  return true;
}

std::string HttpClient::Take(size_t num_bytes) {
  while (buffer_.size() < num_bytes && Fill()) {
  }
  std::string taken = buffer_.substr(0, num_bytes);
  buffer_.erase(0, taken.size());
  return taken;
}

std::string HttpClient::ReceiveUntil(std::string_view text) {
  size_t at = buffer_.find(text);
  while (at == std::string::npos && Fill()) at = buffer_.find(text);
  return Take(at == std::string::npos ? buffer_.size() : at + text.size());
}

std::string HttpClient::ReceiveAll() {
  while (Fill()) {
  }
  return std::exchange(buffer_, {});
}

bool HttpClient::IsClosed() { return buffer_.empty() && !Fill(); }

void HttpClient::PassTimeUntilReadable(TestServer& server) {
  int num_polls = 0;
  while (!IsReadable(2)) {
    server.clock.Advance(absl::Seconds(1));
    CHECK(++num_polls < kPatienceMs / 2);
  }
}

std::string HttpClient::ReadChunks() {
  std::string body;
  for (;;) {
    const std::string line = ReceiveUntil("\r\n");
    const size_t size = std::strtoul(line.c_str(), nullptr, 16);
    body += Take(size);
    if (line.empty()) return body + "(cut off)";
    EXPECT_EQ(Take(2), "\r\n");
    if (size == 0) return body;
  }
}

ClientResponse HttpClient::Receive(bool is_head) {
  ClientResponse response;
  std::string head = ReceiveUntil("\r\n\r\n");
  if (head.size() < 12) return response;
  response.status = std::atoi(head.c_str() + 9);
  size_t line = head.find("\r\n") + 2;
  while (line + 2 < head.size()) {
    const size_t end = head.find("\r\n", line);
    const size_t colon = head.find(": ", line);
    response.headers[Lower(head.substr(line, colon - line))] =
        head.substr(colon + 2, end - colon - 2);
    line = end + 2;
  }
  if (is_head) return response;
  if (response.headers.count("content-length") != 0) {
    response.body = Take(std::strtoul(response.headers["content-length"].c_str(), nullptr, 10));
  } else if (response.headers.count("transfer-encoding") != 0) {
    response.body = ReadChunks();
  } else {
    response.body = ReceiveAll();
  }
  return response;
}

ClientResponse HttpClient::Get(std::string_view path) {
  Send(Concat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n"));
  return Receive();
}

ClientResponse HttpClient::Post(std::string_view path, std::string_view json,
                                std::string_view headers) {
  Send(PostText(path, json, headers));
  return Receive();
}

std::string PostText(std::string_view path, std::string_view json, std::string_view headers) {
  return Concat("POST ", path, " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n",
                headers, "Content-Length: ", json.size(), "\r\n\r\n", json);
}

std::string Member(std::string_view json, std::string_view name) {
  const std::string key = Concat("\"", name, "\":\"");
  const size_t at = json.find(key);
  if (at == std::string_view::npos) return "(absent)";
  const size_t begin = at + key.size();
  return std::string(json.substr(begin, json.find('"', begin) - begin));
}

std::vector<std::string> Events(std::string_view body) {
  std::vector<std::string> events;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    std::string event(body.substr(0, end));
    body.remove_prefix(std::min(body.size(), end + 2));
    if (event.starts_with("data: ")) event.erase(0, 6);
    const size_t id = event.find("\"id\":\"");
    if (id != std::string::npos) event.erase(id, event.find('"', id + 6) + 2 - id);
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace weightless::router
