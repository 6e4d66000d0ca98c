// router_bench: what the router costs. Starts a worker without a model and a router, streams over
// many connections while others idle, and divides the tokens by the processor time of the router's
// process (HTTP, engine thread and gRPC together).
//
//   router_bench --seconds 10 --streams 64 --idle 2000
//
// Exit code 1 when a request failed, an idle connection was lost or --min-rate was missed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/concat.h"
#include "common/file_limit.h"

namespace weightless {
namespace {

struct Flags {
  double seconds = 10;
  int num_streams = 64;
  int num_idle = 2000;
  int max_tokens = 512;
  int http_threads = 1;
  int plan_ahead = 2;
  int step_us = 0;
  double min_rate = 0;
  std::string model = std::string(WEIGHTLESS_SOURCE_DIR) + "/models/tiny-gemma3";
};

// A program of ours, found beside this one. What it prints is read, for its port at first.
class Process {
 public:
  Process(std::vector<std::string> command, const std::regex& port_pattern) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    command[0] = std::filesystem::read_symlink("/proc/self/exe").parent_path() / command[0];
    pid_ = fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      std::vector<char*> arguments;
      for (std::string& argument : command) arguments.push_back(argument.data());
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
    char line[4096];
    std::cmatch match;
    while (std::fgets(line, sizeof(line), output_) != nullptr) {
      if (!std::regex_search(line, match, port_pattern)) continue;
      port_ = std::stoi(match[1]);
      reader_ = std::thread([this] {
        char ignored[4096];
        while (std::fgets(ignored, sizeof(ignored), output_) != nullptr) {
        }
      });
      return;
    }
    std::fprintf(stderr, "%s did not start\n", command[0].c_str());
    std::exit(2);
  }
  ~Process() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    reader_.join();
    fclose(output_);
  }

  int port() const { return port_; }
  // User and system time used so far.
  double CpuSeconds() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t pid_ = 0;
  FILE* output_ = nullptr;
  int port_ = 0;
  std::thread reader_;
};

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

void SendAll(int fd, const std::string& text) {
  CHECK(send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

// One GET whose answer is 200.
bool IsAlive(int fd, const char* path) {
  SendAll(fd, Concat("GET ", path, " HTTP/1.1\r\nHost: bench\r\n\r\n"));
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, 10000) != 1) return false;
  char bytes[4096];
  const ssize_t received = recv(fd, bytes, sizeof(bytes), 0);
  return received > 12 && std::string_view(bytes, 12) == "HTTP/1.1 200";
}

// Connections that each stream one completion after the other.
class Streams {
 public:
  Streams(const Flags& flags, int port)
      : num_expected_(flags.max_tokens), epoll_(epoll_create1(0)) {
    const std::string json =
        Concat(R"({"prompt":"The ocean is","ignore_eos":true,"stream":true,"max_tokens":)",
               flags.max_tokens, "}");
    request_ = Concat(
        "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        "Content-Length: ",
        json.size(), "\r\n\r\n", json);
    streams_.resize(static_cast<size_t>(flags.num_streams));
    for (size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].fd = Connect(port);
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, streams_[i].fd, &event);
      SendAll(streams_[i].fd, request_);
    }
  }

  // Reads what comes until the deadline.
  void Run(absl::Time deadline) {
    std::vector<epoll_event> events(streams_.size());
    while (absl::Now() < deadline) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
      for (int i = 0; i < count; ++i) Read(streams_[events[static_cast<size_t>(i)].data.u64]);
    }
  }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_requests() const { return num_requests_; }
  int64_t num_errors() const { return num_errors_; }
  int64_t num_reads() const { return num_reads_; }

 private:
  struct Stream {
    int fd = -1;
    std::string tail;  // the end of what was read: an event may be cut
    int64_t num_tokens = 0;
  };

  void Read(Stream& stream) {
    static char bytes[1 << 18];
    const ssize_t received = recv(stream.fd, bytes, sizeof(bytes), 0);
    ++num_reads_;
    if (received <= 0) {
      ++num_errors_;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, stream.fd, nullptr);
      return;
    }
    stream.tail.append(bytes, static_cast<size_t>(received));
    size_t begin = 0;
    for (size_t end; (end = stream.tail.find("\n\n", begin)) != std::string::npos;
         begin = end + 2) {
      OnEvent(stream, std::string_view(stream.tail).substr(begin, end - begin));
    }
    stream.tail.erase(0, begin);
  }

  void OnEvent(Stream& stream, std::string_view event) {
    if (event.ends_with("data: [DONE]")) {
      ++num_requests_;
      num_errors_ += stream.num_tokens != num_expected_;
      stream.num_tokens = 0;
      SendAll(stream.fd, request_);
    } else if (event.ends_with("\"finish_reason\":null}]}")) {
      ++stream.num_tokens;
      ++num_tokens_;
    }
  }

  const int64_t num_expected_;
  const int epoll_;
  std::string request_;
  std::vector<Stream> streams_;
  int64_t num_tokens_ = 0, num_requests_ = 0, num_errors_ = 0, num_reads_ = 0;
};

int Run(const Flags& flags) {
  const Process worker(
      {"fake-worker", "--model", flags.model, "--slots", std::to_string(flags.num_streams),
       "--step-us", std::to_string(flags.step_us)},
      std::regex("listening on ([0-9]+)"));
  const Process router({"weightless-router", "--worker", Concat("127.0.0.1:", worker.port()),
                        "--port", "0", "--http-threads", std::to_string(flags.http_threads),
                        "--plan-ahead", std::to_string(flags.plan_ahead), "--log-level", "info"},
                       std::regex("event=listening address=127.0.0.1:([0-9]+)"));
  const int probe = Connect(router.port());
  while (!IsAlive(probe, "/ready")) absl::SleepFor(absl::Milliseconds(20));

  std::vector<int> idle;
  for (int i = 0; i < flags.num_idle; ++i) idle.push_back(Connect(router.port()));
  int num_lost = 0;
  for (const int fd : idle) num_lost += !IsAlive(fd, "/health");

  Streams streams(flags, router.port());
  streams.Run(absl::Now() + absl::Seconds(1));  // warm
  const int64_t tokens_before = streams.num_tokens();
  const double cpu_before = router.CpuSeconds();
  const absl::Time begin = absl::Now();
  streams.Run(begin + absl::Seconds(flags.seconds));
  const double wall = absl::ToDoubleSeconds(absl::Now() - begin);
  const double cpu = router.CpuSeconds() - cpu_before;
  const auto tokens = static_cast<double>(streams.num_tokens() - tokens_before);
  for (const int fd : idle) num_lost += !IsAlive(fd, "/health");

  std::printf("%-38s %12d\n", "streams", flags.num_streams);
  std::printf("%-38s %12d\n", "idle connections", flags.num_idle);
  std::printf("%-38s %12d\n", "idle connections lost", num_lost);
  std::printf("%-38s %12.0f\n", "tokens", tokens);
  std::printf("%-38s %12.2f\n", "tokens per read of the client",
              tokens / static_cast<double>(streams.num_reads()));
  std::printf("%-38s %12.0f\n", "requests completed", static_cast<double>(streams.num_requests()));
  std::printf("%-38s %12.0f\n", "errors", static_cast<double>(streams.num_errors()));
  std::printf("%-38s %12.0f\n", "tokens/s", tokens / wall);
  std::printf("%-38s %12.2f\n", "router cores used", cpu / wall);
  std::printf("%-38s %12.2f\n", "router microseconds per token", cpu / tokens * 1e6);
  std::printf("%-38s %12.0f\n", "tokens/s per router core", tokens / cpu);
  const bool fine = num_lost == 0 && streams.num_errors() == 0 && tokens / cpu >= flags.min_rate;
  return fine ? 0 : 1;
}

}  // namespace
}  // namespace weightless

int main(int argc, char** argv) {
  weightless::Flags flags;
  CLI::App app("Measures what the router costs", "router_bench");
  app.add_option("--seconds", flags.seconds, "to measure")->capture_default_str();
  app.add_option("--streams", flags.num_streams, "connections that stream")->capture_default_str();
  app.add_option("--idle", flags.num_idle, "connections that idle")->capture_default_str();
  app.add_option("--max-tokens", flags.max_tokens, "of a request")->capture_default_str();
  app.add_option("--http-threads", flags.http_threads, "of the router")->capture_default_str();
  app.add_option("--plan-ahead", flags.plan_ahead, "of the router")->capture_default_str();
  app.add_option("--step-us", flags.step_us, "of the worker: fewer tokens come at once");
  app.add_option("--min-rate", flags.min_rate, "tokens/s per core that is enough");
  app.add_option("--model", flags.model, "folder with a tokenizer")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  weightless::RaiseFileLimit();
  signal(SIGPIPE, SIG_IGN);
  return weightless::Run(flags);
}
