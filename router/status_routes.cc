// The routes that report: models, readiness, loads, and the listener of metrics alone.
#include "common/concat.h"
#include "common/status.h"
#include "router/api_error.h"
#include "router/json_writer.h"
#include "router/routes.h"

namespace weightless::router {
namespace {

std::string ModelObject(const std::string& name, const ServedModel& model, int64_t max_len) {
  return Concat("{\"id\":", JsonString(name),
                ",\"object\":\"model\",\"created\":", absl::ToUnixSeconds(model.loaded_at),
                ",\"owned_by\":\"weightless\",", "\"max_model_len\":", max_len, "}");
}

std::string ReplicaObject(const ReplicaLoad& load) {
  return Concat("{\"address\":", JsonString(load.address),
                ",\"ready\":", load.ready ? "true" : "false", ",\"num_running\":", load.num_running,
                ",\"num_waiting\":", load.num_waiting,
                ",\"num_outstanding_tokens\":", load.num_outstanding_tokens,
                ",\"full_blocks_used\":", load.full_blocks_used,
                ",\"full_blocks_total\":", load.full_blocks_total,
                ",\"sliding_blocks_used\":", load.sliding_blocks_used,
                ",\"sliding_blocks_total\":", load.sliding_blocks_total, "}");
}

}  // namespace

HttpResponse Routes::Models() {
  const auto view = CurrentModel();
  std::string model;
  if (view.ok()) {
    model = ModelObject((*view)->name, *(*view)->model, dispatcher_.length_limit().num_tokens);
  }
  return JsonResponse(Concat("{\"object\":\"list\",\"data\":[", model, "]}"));
}

absl::StatusOr<HttpResponse> Routes::Model(std::string_view id) {
  ASSIGN_OR_RETURN(const auto view, CurrentModel());
  RETURN_IF_ERROR(CheckModelName(*view, std::string(id)));
  return JsonResponse(ModelObject(view->name, *view->model, dispatcher_.length_limit().num_tokens));
}

HttpResponse Routes::Ready() {
  if (draining_) return JsonResponse(R"({"status":"draining"})", 503);
  for (const ReplicaLoad& load : dispatcher_.loads().replicas) {
    if (load.ready) return JsonResponse(R"({"status":"ready"})");
  }
  return JsonResponse(R"({"status":"no ready replica"})", 503);
}

HttpResponse Routes::Version() {
  return JsonResponse(Concat("{\"version\":", JsonString(WEIGHTLESS_VERSION), "}"));
}

HttpResponse Routes::LoadsReport() {
  const Loads loads = dispatcher_.loads();
  std::string body = Concat("{\"num_queued\":", loads.num_queued, ",\"replicas\":[");
  for (size_t i = 0; i < loads.replicas.size(); ++i) {
    if (i > 0) body += ',';
    body += ReplicaObject(loads.replicas[i]);
  }
  body += "]}";
  return JsonResponse(std::move(body));
}

HttpResponse JsonResponse(std::string body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse MetricsResponse(const RouterMetrics& metrics) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics.Exposition();
  return response;
}

std::optional<HttpResponse> MetricsRoutes::CheckHead(HttpRequest& head) {
  if (head.path != "/metrics") {
    return RefusalResponse(404, "not_found", "only /metrics is here");
  }
  if (head.method == "GET") return std::nullopt;
  HttpResponse response = RefusalResponse(405, "method_not_allowed", "only GET is allowed here");
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

Answer MetricsRoutes::Handle(HttpRequest, std::function<void()>) {
  return MetricsResponse(metrics_);
}

}  // namespace weightless::router
