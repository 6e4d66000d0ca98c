#include "loadtest/server_api.h"

#include <boost/asio/io_context.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <functional>
#include <utility>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"
#include "loadtest/error_text.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

constexpr int kParallel = 8;
constexpr size_t kMaxAnswerBytes = size_t{64} << 20;
constexpr absl::Duration kTimeout = absl::Seconds(30);

}  // namespace

struct ServerApi::Answer {
  absl::Status status;
  ResponseHead head;
  std::string body;

  absl::StatusOr<std::string> Ok(std::string_view what) && {
    if (!status.ok()) return status;
    if (head.status == 200) return std::move(body);
    return absl::UnavailableError(Concat(what, " answers ", RefusalText(head, body)));
  }
};

struct ServerApi::Loop {
  Loop(Url url, TlsOptions tls) : client(io, std::move(url), std::move(tls)) {}
  boost::asio::io_context io{1};
  HttpClient client;
};

// One way to ask for tokens.
struct ServerApi::Dialect {
  const char* path;
  const char* text_key;
  bool has_model;
};

namespace {

class Collector : public ResponseHandler {
 public:
  Collector(ResponseHead& head, std::string& body, absl::Status& status,
            std::function<void()> on_end)
      : head_(head), body_(body), status_(status), on_end_(std::move(on_end)) {}

  void OnHead(const ResponseHead& head) override { head_ = head; }
  absl::Status OnBody(std::string_view bytes, SteadyTime /*when*/) override {
    body_.append(bytes);
    if (body_.size() <= kMaxAnswerBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(Concat("an answer of over ", kMaxAnswerBytes, " bytes"));
  }
  void OnEnd(const ExchangeEnd& end) override {
    status_ = end.status;
    on_end_();
  }

 private:
  ResponseHead& head_;
  std::string& body_;
  absl::Status& status_;
  std::function<void()> on_end_;
};

// The number of tokens an answer tells: "count", or the size of "tokens".
absl::StatusOr<size_t> TokensIn(std::string_view body) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(body));
  const json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("no JSON object");
  if (const json::value* count = object->if_contains("count"); count && count->is_int64()) {
    return static_cast<size_t>(std::max<int64_t>(count->get_int64(), 0));
  }
  if (const json::value* tokens = object->if_contains("tokens"); tokens && tokens->is_array()) {
    return tokens->get_array().size();
  }
  return absl::InvalidArgumentError("neither count nor tokens");
}

}  // namespace

ServerApi::ServerApi(Url url, TlsOptions tls, std::string headers)
    : loop_(std::make_unique<Loop>(std::move(url), std::move(tls))), headers_(std::move(headers)) {}
ServerApi::~ServerApi() = default;

absl::Status ServerApi::Open() { return loop_->client.Open(); }

std::vector<ServerApi::Answer> ServerApi::Call(std::string_view method, const std::string& path,
                                               const std::vector<std::string>& bodies) {
  std::vector<Answer> answers(bodies.size());
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.reserve(bodies.size());
  size_t next = 0;
  const std::function<void()> start_one = [&] {
    if (next >= bodies.size()) return;
    Answer& answer = answers[next];
    collectors.push_back(
        std::make_unique<Collector>(answer.head, answer.body, answer.status, [&] { start_one(); }));
    std::string request =
        FormatRequest(loop_->client.url(), method, path, headers_, bodies[next++]);
    loop_->client.Start(std::move(request), *collectors.back(), kTimeout);
  };
  for (int i = 0; i < kParallel; ++i) start_one();
  loop_->io.restart();
  loop_->io.run();
  return answers;
}

absl::StatusOr<std::string> ServerApi::Get(std::string_view path) {
  std::vector<Answer> answers = Call("GET", std::string(path), {""});
  return std::move(answers.front()).Ok(path);
}

absl::StatusOr<std::string> ServerApi::FirstModel() {
  ASSIGN_OR_RETURN(const std::string body, Get("/v1/models"));
  const auto value = ParseJson(body);
  if (!value.ok()) {
    return absl::UnavailableError(
        Concat("/v1/models answers what is ", std::string(value.status().message())));
  }
  const json::value* data = value->is_object() ? value->get_object().if_contains("data") : nullptr;
  if (data != nullptr && data->is_array() && !data->get_array().empty()) {
    const json::value& first = data->get_array().front();
    const json::value* id = first.is_object() ? first.get_object().if_contains("id") : nullptr;
    if (id != nullptr && id->is_string()) {
      return std::string(id->get_string().data(), id->get_string().size());
    }
  }
  return absl::UnavailableError("/v1/models lists no model");
}

absl::StatusOr<std::vector<size_t>> ServerApi::CountWith(const Dialect& dialect,
                                                         const std::string& model,
                                                         const std::vector<std::string>& texts) {
  std::vector<std::string> bodies;
  for (const std::string& text : texts) {
    json::object body;
    body[dialect.text_key] = text;
    if (dialect.has_model) {
      body["model"] = model;
      body["add_special_tokens"] = false;
    }
    bodies.push_back(json::serialize(body));
  }
  std::vector<size_t> counts;
  std::vector<Answer> answers = Call("POST", dialect.path, bodies);
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string body, std::move(answers[i]).Ok(dialect.path));
    ASSIGN_OR_RETURN(const size_t count, TokensIn(body));
    if (count == 0 && !texts[i].empty()) return absl::UnimplementedError("counts no tokens");
    counts.push_back(count);
  }
  return counts;
}

absl::StatusOr<std::vector<size_t>> ServerApi::CountTokens(const std::string& model,
                                                           const std::vector<std::string>& texts) {
  static constexpr Dialect kDialects[] = {{"/tokenize", "prompt", true},
                                          {"/tokenize", "content", false},
                                          {"/extras/tokenize", "input", false}};
  if (dialect_ != nullptr) return CountWith(*dialect_, model, texts);
  for (const Dialect& dialect : kDialects) {
    if (texts.empty() || !CountWith(dialect, model, {texts.front()}).ok()) continue;
    dialect_ = &dialect;
    return CountWith(dialect, model, texts);
  }
  return absl::UnimplementedError("the server does not count tokens");
}

}  // namespace weightless::loadtest
