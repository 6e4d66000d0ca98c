#include "loadtest/request_body.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

std::string JsonText(const std::string& text) { return json::serialize(json::string(text)); }

}  // namespace

absl::StatusOr<RequestWriter> RequestWriter::Make(const Config& config, const std::string& model) {
  json::object common;
  common["model"] = model;
  common["stream"] = true;
  common["stream_options"] = json::object{{"include_usage", true}};
  common["temperature"] = config.temperature.value_or(0);
  if (config.ignores_eos) common["ignore_eos"] = true;
  if (config.asks_token_ids) common["return_token_ids"] = true;
  if (!config.extra_body.empty()) {
    const auto extra = ParseJson(config.extra_body);
    if (!extra.ok() || !extra->is_object()) {
      return absl::InvalidArgumentError(
          Concat("--extra-body ", Quoted(config.extra_body), " is not a JSON object"));
    }
    for (const auto& [key, value] : extra->get_object()) {
      if (key == "max_tokens" || key == "messages" || key == "prompt" || key == "stream") {
        return absl::InvalidArgumentError(
            Concat("--extra-body sets ", std::string(key), ", which is not free here"));
      }
      common[key] = value;
    }
  }
  RequestWriter writer;
  writer.endpoint_ = config.endpoint;
  const std::string text = json::serialize(common);
  writer.common_ = Concat(",", text.substr(1));  // with the closing brace of the request
  return writer;
}

const char* RequestWriter::path() const {
  return endpoint_ == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::string RequestWriter::Body(const Prompt& prompt) const {
  std::string body = Concat("{\"max_tokens\":", prompt.max_tokens);
  if (endpoint_ == Endpoint::kChat) {
    body += ",\"messages\":[";
    for (size_t i = 0; i < prompt.messages.size(); ++i) {
      const Message& message = prompt.messages[i];
      body += Concat(i == 0 ? "" : ",", "{\"role\":", JsonText(message.role),
                     ",\"content\":", JsonText(message.content), "}");
    }
    body += ']';
  } else {
    std::string text;
    for (const Message& message : prompt.messages) {
      if (!text.empty()) text += '\n';
      text += message.content;
    }
    body += Concat(",\"prompt\":", JsonText(text));
  }
  return body + common_;
}

std::string CommonHeaders(const Config& config) {
  std::string headers = "Content-Type: application/json\r\n";
  if (!config.api_key.empty()) headers += Concat("Authorization: Bearer ", config.api_key, "\r\n");
  return headers;
}

}  // namespace weightless::loadtest
