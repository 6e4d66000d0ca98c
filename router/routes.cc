#include "router/routes.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/concat.h"
#include "common/log.h"
#include "common/status.h"
#include "router/api_error.h"
#include "router/json_writer.h"
#include "router/response_parts.h"

namespace weightless::router {
namespace {

constexpr int kMaxSequences = 1024;  // choices of one request, over all its prompts
constexpr std::string_view kModelPrefix = "/v1/models/";

struct Route {
  std::string_view path;
  std::string_view method;
  bool needs_key = true;
};

constexpr std::array kRoutes = {
    Route{"/v1/chat/completions", "POST"},
    Route{"/v1/completions", "POST"},
    Route{"/tokenize", "POST"},
    Route{"/detokenize", "POST"},
    Route{"/v1/models", "GET"},
    Route{kModelPrefix, "GET"},
    Route{"/health", "GET", false},
    Route{"/ready", "GET", false},
    Route{"/metrics", "GET"},
    Route{"/version", "GET"},
    Route{"/v1/loads", "GET"},
};

const Route* FindRoute(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool takes_id = route.path == kModelPrefix;
    if (!takes_id && path == route.path) return &route;
    if (takes_id && path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix)) {
      return &route;
    }
  }
  return nullptr;
}

HttpResponse NotFound(std::string_view path) {
  return RefusalResponse(404, "not_found", Concat("there is no route ", Quoted(path)));
}

HttpResponse MethodNotAllowed(std::string_view method, const Route& route) {
  HttpResponse response = RefusalResponse(
      405, "method_not_allowed",
      Concat("method ", Quoted(method), " is not allowed here, only ", route.method));
  response.headers.emplace_back("Allow", route.method == "GET" ? "GET, HEAD" : route.method);
  return response;
}

bool IsJson(std::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  const std::string type(content_type.substr(0, end));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(type), "application/json");
}

}  // namespace

Routes::Routes(const RouterConfig& config, ApiKeys keys, Dispatcher& dispatcher, const Clock& clock,
               RouterMetrics& metrics)
    : config_(config),
      dispatcher_(dispatcher),
      clock_(clock),
      metrics_(metrics),
      limiter_({.requests_under_way = config.max_requests_per_key,
                .requests_per_minute = config.max_requests_per_minute_per_key,
                .tokens_per_minute = config.max_tokens_per_minute_per_key},
               clock, metrics),
      keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}

void Routes::SetKeys(ApiKeys keys) {
  auto replacement = std::make_shared<const ApiKeys>(std::move(keys));
  absl::MutexLock lock(&mutex_);
  keys_ = std::move(replacement);
}

std::shared_ptr<const ApiKeys> Routes::keys() {
  absl::MutexLock lock(&mutex_);
  return keys_;
}

std::optional<HttpResponse> Routes::CheckHead(HttpRequest& head) {
  const Route* route = FindRoute(head.path);
  if (route == nullptr || route->needs_key) {
    auto key = keys()->Authenticate(head.authorization);
    if (!key.ok()) {
      metrics_.refused_api_key.Add();
      return ErrorResponse(key.status());
    }
    head.key_id = *std::move(key);
  }
  if (route == nullptr) return NotFound(head.path);
  if (head.method != route->method) return MethodNotAllowed(head.method, *route);
  if (route->method != "POST") return std::nullopt;
  if (!head.content_type.empty() && !IsJson(head.content_type)) {
    return RefusalResponse(415, "unsupported_media_type",
                           Concat("content type ", Quoted(head.content_type),
                                  " is not supported, only application/json"));
  }
  if (!head.content_encoding.empty() &&
      !absl::EqualsIgnoreCase(head.content_encoding, "identity")) {
    return RefusalResponse(
        415, "unsupported_media_type",
        Concat("content encoding ", Quoted(head.content_encoding), " is not supported"));
  }
  return std::nullopt;
}

Answer Routes::Handle(HttpRequest request, std::function<void()> wake) {
  absl::StatusOr<Answer> answer = Dispatch(request, std::move(wake));
  if (answer.ok()) return *std::move(answer);
  const int http_status = ToApiError(answer.status()).http_status;
  if (http_status == 503) metrics_.refused_overloaded.Add();
  if (http_status == 500) {
    LogError("request_failed",
             {{"request_id", request.request_id}, {"reason", answer.status().ToString()}});
  }
  return ErrorResponse(answer.status());
}

absl::StatusOr<Answer> Routes::Dispatch(HttpRequest& request, std::function<void()> wake) {
  const std::string_view path = request.path;
  if (path == "/v1/chat/completions") return Chat(request, std::move(wake));
  if (path == "/v1/completions") return Completion(request, std::move(wake));
  if (path == "/tokenize") return Tokenize(request);
  if (path == "/detokenize") return Detokenize(request);
  if (path == "/v1/models") return Models();
  if (path.starts_with(kModelPrefix)) return Model(path.substr(kModelPrefix.size()));
  if (path == "/health") return JsonResponse(R"({"status":"ok"})");
  if (path == "/ready") return Ready();
  if (path == "/metrics") return MetricsResponse(metrics_);
  if (path == "/version") return Version();
  return LoadsReport();
}

absl::StatusOr<std::shared_ptr<const Routes::View>> Routes::CurrentModel() {
  std::shared_ptr<const ServedModel> model = dispatcher_.model();
  if (model == nullptr) return absl::UnavailableError("no worker has been ready yet");
  absl::MutexLock lock(&mutex_);
  if (view_ != nullptr && view_->model == model) return view_;
  auto view = std::make_shared<View>();
  view->name = config_.served_model_name.empty() ? model->description.model().name()
                                                 : config_.served_model_name;
  // What is larger than the queue would be refused for ever.
  view->limits = {.vocab_size = static_cast<int>(model->description.model().vocab_size()),
                  .max_sequences = std::min(kMaxSequences, config_.max_queued)};
  const auto file = model->files.find("generation_config.json");
  if (file != model->files.end() && config_.use_generation_config) {
    auto defaults = ParseSamplingDefaults(file->second, file->first);
    if (defaults.ok()) {
      view->defaults = *defaults;
    } else {
      LogWarning("generation_config_ignored", {{"reason", defaults.status().ToString()}});
    }
  }
  view->model = std::move(model);
  view_ = std::move(view);
  return view_;
}

absl::Status Routes::CheckModelName(const View& view, const std::string& name) const {
  if (name.empty() || name == view.name) return absl::OkStatus();
  return WithParam(ErrorWithCode(absl::StatusCode::kNotFound, "model_not_found",
                                 Concat("the model ", Quoted(name), " is not served here, only ",
                                        Quoted(view.name))),
                   "model");
}

absl::Status Routes::Admit(const std::string& key_id, int num_sequences) const {
  if (draining_) return absl::UnavailableError("the server is draining");
  return dispatcher_.Admit(key_id, num_sequences);
}

GenerationSpec Routes::MakeSpec(const View& view, const HttpRequest& request,
                                const GenerationOptions& options) {
  GenerationSpec spec;
  spec.model = view.model;
  spec.model_name = view.name;
  spec.options = options;
  spec.defaults = view.defaults;
  spec.request_id = request.request_id;
  spec.key_id = request.key_id;
  spec.received_at = request.received_at;
  if (config_.request_timeout > absl::ZeroDuration()) {
    spec.deadline = request.received_at + config_.request_timeout;
  }
  metrics_.unknown_fields.Add(options.num_unknown_fields);
  return spec;
}

absl::StatusOr<Answer> Routes::StartGeneration(GenerationSpec spec, KeyLimiter::Lease lease,
                                               std::function<void()> wake) {
  ASSIGN_OR_RETURN(std::unique_ptr<Reply> reply,
                   Generation::Start(std::move(spec), {dispatcher_, clock_, metrics_},
                                     std::move(lease), std::move(wake)));
  return Answer(std::move(reply));
}

absl::StatusOr<Answer> Routes::Chat(HttpRequest& request, std::function<void()> wake) {
  ASSIGN_OR_RETURN(const auto view, CurrentModel());
  ASSIGN_OR_RETURN(const ChatRequest chat, ParseChatRequest(request.body, view->limits));
  RETURN_IF_ERROR(CheckModelName(*view, chat.options.model));
  ASSIGN_OR_RETURN(KeyLimiter::Lease lease, limiter_.Acquire(request.key_id));
  RETURN_IF_ERROR(Admit(request.key_id, chat.options.n));
  GenerationSpec spec = MakeSpec(*view, request, chat.options);
  spec.is_chat = true;
  ASSIGN_OR_RETURN(Prompt prompt, ChatPrompt(*view->model->tokenizer, chat));
  spec.prompts.push_back(std::move(prompt));
  return StartGeneration(std::move(spec), std::move(lease), std::move(wake));
}

absl::StatusOr<Answer> Routes::Completion(HttpRequest& request, std::function<void()> wake) {
  ASSIGN_OR_RETURN(const auto view, CurrentModel());
  ASSIGN_OR_RETURN(const CompletionRequest completion,
                   ParseCompletionRequest(request.body, view->limits));
  RETURN_IF_ERROR(CheckModelName(*view, completion.options.model));
  ASSIGN_OR_RETURN(KeyLimiter::Lease lease, limiter_.Acquire(request.key_id));
  RETURN_IF_ERROR(
      Admit(request.key_id, static_cast<int>(completion.prompts.size()) * completion.options.n));
  GenerationSpec spec = MakeSpec(*view, request, completion.options);
  spec.echo = completion.echo;
  for (const PromptInput& input : completion.prompts) {
    spec.prompts.push_back(CompletionPrompt(*view->model->tokenizer, input,
                                            completion.add_special_tokens,
                                            completion.options.skip_special_tokens));
  }
  return StartGeneration(std::move(spec), std::move(lease), std::move(wake));
}

absl::StatusOr<HttpResponse> Routes::Tokenize(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const auto view, CurrentModel());
  ASSIGN_OR_RETURN(const TokenizeRequest tokenize, ParseTokenizeRequest(request.body));
  RETURN_IF_ERROR(CheckModelName(*view, tokenize.model));
  metrics_.unknown_fields.Add(tokenize.num_unknown_fields);
  const model::Tokenizer& tokenizer = *view->model->tokenizer;
  Prompt prompt;
  if (const auto* chat = std::get_if<ChatRequest>(&tokenize.input)) {
    ASSIGN_OR_RETURN(prompt, ChatPrompt(tokenizer, *chat));
  } else {
    prompt = CompletionPrompt(tokenizer, std::get<std::string>(tokenize.input),
                              tokenize.add_special_tokens, /*skip_special_tokens=*/true);
  }
  std::string body =
      Concat("{\"count\":", prompt.tokens.size(),
             ",\"max_model_len\":", dispatcher_.length_limit().num_tokens, ",\"tokens\":");
  AppendIntArray(body, prompt.tokens);
  if (tokenize.return_token_strs) {
    body += ",\"token_strs\":[";
    for (size_t i = 0; i < prompt.tokens.size(); ++i) {
      if (i > 0) body += ',';
      AppendJsonString(body, TokenText(tokenizer, prompt.tokens[i]));
    }
    body += ']';
  }
  body += '}';
  return JsonResponse(std::move(body));
}

absl::StatusOr<HttpResponse> Routes::Detokenize(const HttpRequest& request) {
  ASSIGN_OR_RETURN(const auto view, CurrentModel());
  ASSIGN_OR_RETURN(const DetokenizeRequest detokenize,
                   ParseDetokenizeRequest(request.body, view->limits));
  RETURN_IF_ERROR(CheckModelName(*view, detokenize.model));
  metrics_.unknown_fields.Add(detokenize.num_unknown_fields);
  const std::string text =
      view->model->tokenizer->Decode(detokenize.tokens, /*skip_special=*/false);
  return JsonResponse(Concat("{\"prompt\":", JsonString(text), "}"));
}

}  // namespace weightless::router
