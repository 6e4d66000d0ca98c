// The routes of the HTTP surface: who may call them and what each answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "router/auth.h"
#include "router/config.h"
#include "router/dispatcher.h"
#include "router/generation.h"
#include "router/http_message.h"
#include "router/key_limiter.h"
#include "router/openai_api.h"

namespace weightless::router {

// Thread-safe.
class Routes : public HttpHandler {
 public:
  // All that is referred to outlives this.
  Routes(const RouterConfig& config, ApiKeys keys, Dispatcher& dispatcher, const Clock& clock,
         RouterMetrics& metrics);

  // Who may call from now on; answers under way go on.
  void SetKeys(ApiKeys keys);

  // From now on generation requests are refused (503) and /ready says no.
  void BeginDrain() { draining_ = true; }

  std::optional<HttpResponse> CheckHead(HttpRequest& head) override;
  Answer Handle(HttpRequest request, std::function<void()> wake) override;

 private:
  // The served model as requests need it.
  struct View {
    std::shared_ptr<const ServedModel> model;
    std::string name;
    SamplingDefaults defaults;
    RequestLimits limits;
  };

  std::shared_ptr<const ApiKeys> keys();
  absl::StatusOr<Answer> Dispatch(HttpRequest& request, std::function<void()> wake);
  absl::StatusOr<Answer> Chat(HttpRequest& request, std::function<void()> wake);
  absl::StatusOr<Answer> Completion(HttpRequest& request, std::function<void()> wake);
  absl::StatusOr<HttpResponse> Tokenize(const HttpRequest& request);
  absl::StatusOr<HttpResponse> Detokenize(const HttpRequest& request);
  HttpResponse Models();
  absl::StatusOr<HttpResponse> Model(std::string_view id);
  HttpResponse Ready();
  HttpResponse Version();
  HttpResponse LoadsReport();

  // kUnavailable until a worker has been ready.
  absl::StatusOr<std::shared_ptr<const View>> CurrentModel();
  absl::Status CheckModelName(const View& view, const std::string& name) const;
  absl::Status Admit(const std::string& key_id, int num_sequences) const;
  GenerationSpec MakeSpec(const View& view, const HttpRequest& request,
                          const GenerationOptions& options);
  absl::StatusOr<Answer> StartGeneration(GenerationSpec spec, KeyLimiter::Lease lease,
                                         std::function<void()> wake);

  const RouterConfig& config_;
  Dispatcher& dispatcher_;
  const Clock& clock_;
  RouterMetrics& metrics_;
  KeyLimiter limiter_;
  std::atomic<bool> draining_ = false;
  absl::Mutex mutex_;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ApiKeys> keys_ ABSL_GUARDED_BY(mutex_);
};

HttpResponse JsonResponse(std::string body, int status = 200);

// The answer to GET /metrics.
HttpResponse MetricsResponse(const RouterMetrics& metrics);

// Only /metrics, for the listener of --metrics-port.
class MetricsRoutes : public HttpHandler {
 public:
  explicit MetricsRoutes(const RouterMetrics& metrics) : metrics_(metrics) {}

  std::optional<HttpResponse> CheckHead(HttpRequest& head) override;
  Answer Handle(HttpRequest request, std::function<void()> wake) override;

 private:
  const RouterMetrics& metrics_;
};

}  // namespace weightless::router
