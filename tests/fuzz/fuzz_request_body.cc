// The readers of request bodies over arbitrary bytes: what they accept is in its bounds, and what
// they refuse can be said in sound JSON.
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/json.h"
#include "router/api_error.h"
#include "router/json_writer.h"
#include "router/openai_api.h"

using namespace weightless::router;

namespace {

constexpr RequestLimits kLimits = {.vocab_size = 1000, .max_sequences = 64};

void CheckRefusal(const absl::Status& status) {
  if (status.ok()) return;
  const ApiError error = ToApiError(status);
  CHECK(error.http_status == 400 && !error.code.empty() && !error.message.empty());
  CHECK(weightless::ParseJson(ErrorBody(error)).ok());
}

void CheckOptions(const GenerationOptions& options) {
  CHECK(options.n >= 1 && options.n <= 128);
  CHECK(options.temperature.value_or(0) >= 0 && options.temperature.value_or(0) <= 2);
  CHECK(options.top_p.value_or(1) > 0 && options.top_p.value_or(1) <= 1);
  CHECK(options.top_k.value_or(0) >= 0);
  CHECK(options.stop.size() <= 64);
  for (const std::string& stop : options.stop) CHECK(!stop.empty());
  for (const int32_t id : options.stop_token_ids) CHECK(id >= 0 && id < kLimits.vocab_size);
  for (const auto& [id, bias] : options.logit_bias) CHECK(id >= 0 && bias >= -100 && bias <= 100);
  CHECK(options.stream || !options.include_usage);
}

void CheckText(const std::string& text) {
  const auto value = weightless::ParseJson(JsonString(text));
  CHECK(value.ok() && value->is_string());
  CHECK(std::string_view(value->get_string().data(), value->get_string().size()) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto chat = ParseChatRequest(body, kLimits);
  CheckRefusal(chat.status());
  if (chat.ok()) {
    CheckOptions(chat->options);
    CHECK(!chat->messages.empty() && chat->options.max_tokens.value_or(1) >= 1);
    for (const auto& message : chat->messages) {
      for (const std::string& part : message.parts) CheckText(part);
    }
  }
  const auto completion = ParseCompletionRequest(body, kLimits);
  CheckRefusal(completion.status());
  if (completion.ok()) {
    CheckOptions(completion->options);
    CHECK(!completion->prompts.empty());
    CHECK(completion->echo || completion->options.max_tokens.value_or(1) >= 1);
  }
  CheckRefusal(ParseTokenizeRequest(body).status());
  CheckRefusal(ParseDetokenizeRequest(body, kLimits).status());
  if (const auto defaults = ParseSamplingDefaults(body, "fuzz"); defaults.ok()) {
    CHECK(defaults->top_k >= 0 && defaults->top_p > 0 && defaults->temperature <= 2);
  }
  return 0;
}
