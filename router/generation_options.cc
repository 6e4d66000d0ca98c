#include "router/generation_options.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <limits>

#include "common/concat.h"
#include "model/config.h"
#include "router/field_reader.h"

namespace weightless::router {
namespace {

namespace json = boost::json;

constexpr int kMaxChoices = 128;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopTokenIds = 1000;
static_assert(kMaxStopTokenIds + model::ConfigLimits::kStopIds <= 1024);  // what a plan may hold
constexpr size_t kMaxLogitBias = 1024;
constexpr size_t kMaxNameBytes = 1024;
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void AddStop(FieldReader& reader, std::string_view name, const json::value& value,
             std::vector<std::string>& stops) {
  if (!value.is_string()) {
    return reader.Fail(name, "invalid_type", Concat("must be a string, not ", KindName(value)));
  }
  const json::string& text = value.get_string();
  if (text.empty() || text.size() > kMaxStopBytes) {
    return reader.Fail(name, "out_of_range",
                       Concat("has ", text.size(), " bytes, not 1 to ", kMaxStopBytes));
  }
  stops.emplace_back(text.data(), text.size());
}

void ReadStop(FieldReader& reader, std::vector<std::string>& stops) {
  const json::value* value = reader.Find("stop");
  if (value == nullptr) return;
  if (!value->is_array()) return AddStop(reader, "stop", *value, stops);
  const json::array* list = reader.Array("stop", kMaxStops);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    AddStop(reader, Concat("stop[", i, "]"), (*list)[i], stops);
  }
}

void ReadLogitBias(FieldReader& reader, int vocab_size, std::map<int32_t, double>& out) {
  const json::object* biases = reader.Object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMaxLogitBias) {
    return reader.Fail("logit_bias", "out_of_range",
                       Concat("has ", biases->size(), " entries, more than ", kMaxLogitBias));
  }
  FieldReader entries(*biases, "logit_bias");
  for (const auto& entry : *biases) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return reader.Fail(
          "logit_bias", "out_of_range",
          Concat("key ", Quoted(key), " is not a token id in [0, ", vocab_size, ")"));
    }
    std::optional<double> bias;
    entries.Float(key, -100, 100, bias);
    if (bias) out[id] = *bias;
  }
  reader.Fail(entries.status());
}

void ReadSampling(FieldReader& reader, const RequestLimits& limits, GenerationOptions& options) {
  std::optional<double> presence, frequency;
  reader.Float("temperature", 0, 2, options.temperature);
  reader.FloatAbove("top_p", 0, 1, options.top_p);
  reader.Int("top_k", -1, kMaxInt, options.top_k);
  reader.Float("min_p", 0, 1, options.min_p);
  reader.FloatAbove("repetition_penalty", 0, 2, options.repetition_penalty);
  reader.Float("presence_penalty", -2, 2, presence);
  reader.Float("frequency_penalty", -2, 2, frequency);
  reader.Int("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
             options.seed);
  ReadLogitBias(reader, limits.vocab_size, options.logit_bias);
  options.presence_penalty = presence.value_or(0);
  options.frequency_penalty = frequency.value_or(0);
  if (options.top_k == -1) options.top_k = 0;
}

void ReadStops(FieldReader& reader, const RequestLimits& limits, GenerationOptions& options) {
  ReadStop(reader, options.stop);
  if (const json::array* ids = reader.Array("stop_token_ids", kMaxStopTokenIds)) {
    ReadTokenIds(reader, "stop_token_ids", *ids, limits.vocab_size, options.stop_token_ids);
  }
  reader.Bool("include_stop_str_in_output", options.include_stop_str_in_output);
  reader.Bool("ignore_eos", options.ignore_eos);
  reader.Bool("skip_special_tokens", options.skip_special_tokens);
  reader.Int("min_tokens", 0, kMaxInt, options.min_tokens);
}

void ReadStreaming(FieldReader& reader, GenerationOptions& options) {
  reader.Bool("stream", options.stream);
  const json::object* stream_options = reader.Object("stream_options");
  if (stream_options == nullptr) return;
  FieldReader nested(*stream_options, "stream_options");
  nested.Bool("include_usage", options.include_usage);
  nested.Bool("continuous_usage_stats", options.continuous_usage_stats);
  nested.Accept("include_obfuscation");
  reader.Absorb(nested);
  if (!options.stream) {
    reader.Fail("stream_options", "invalid_value", "is only allowed when stream is true");
  }
}

void ReadChoices(FieldReader& reader, const RequestLimits& limits, GenerationOptions& options) {
  int64_t n = 1;
  std::optional<int64_t> best_of;
  reader.Int("n", 1, std::min(kMaxChoices, limits.max_sequences), n);
  reader.Int("best_of", 1, kMaxChoices, best_of);
  options.n = static_cast<int>(n);
  if (best_of && *best_of < n) {
    reader.Fail("best_of", "out_of_range", Concat(*best_of, " is less than n, ", n));
  }
  if (best_of && *best_of > n) {
    reader.Fail("best_of", "unsupported_field",
                Concat(*best_of, " is more than n, ", n, ", which is not supported"));
  }
}

// Nothing that changes what may come out is ignored in silence.
void RefuseUnsupported(FieldReader& reader) {
  for (const char* name : {"tools",
                           "tool_choice",
                           "functions",
                           "function_call",
                           "suffix",
                           "audio",
                           "prediction",
                           "web_search_options",
                           "use_beam_search",
                           "guided_json",
                           "guided_regex",
                           "guided_choice",
                           "guided_grammar",
                           "structured_outputs",
                           "logits_processors",
                           "bad_words",
                           "allowed_token_ids",
                           "truncate_prompt_tokens",
                           "prompt_embeds",
                           "mm_processor_kwargs"}) {
    reader.Refuse(name);
  }
  if (const json::object* format = reader.Object("response_format")) {
    FieldReader nested(*format, "response_format");
    std::string type;
    nested.String("type", kMaxNameBytes, type);
    reader.Absorb(nested);
    if (type.empty()) reader.Fail("response_format.type", "missing_field", "is missing");
    if (type != "text") {
      reader.Fail("response_format", "unsupported_field",
                  Concat("of type ", Quoted(type), " is not supported"));
    }
  }
}

void AcceptInert(FieldReader& reader) {
  for (const char* name :
       {"store", "metadata", "service_tier", "parallel_tool_calls", "reasoning_effort", "verbosity",
        "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "request_id",
        "spaces_between_special_tokens"}) {
    reader.Accept(name);
  }
}

}  // namespace

GenerationOptions ReadGenerationOptions(FieldReader& reader, const RequestLimits& limits) {
  GenerationOptions options;
  std::string user;
  int64_t priority = 0;
  std::optional<int64_t> prompt_logprobs;
  reader.String("model", kMaxNameBytes, options.model);
  reader.String("user", kMaxNameBytes, user);
  ReadChoices(reader, limits, options);
  ReadSampling(reader, limits, options);
  ReadStops(reader, limits, options);
  ReadStreaming(reader, options);
  reader.Int("prompt_logprobs", 0, kMaxLogprobs, prompt_logprobs);
  reader.Bool("return_token_ids", options.return_token_ids);
  reader.Int("priority", std::numeric_limits<int32_t>::min(), kMaxInt, priority);
  reader.String("cache_salt", kMaxNameBytes, options.cache_salt);
  RefuseUnsupported(reader);
  AcceptInert(reader);
  options.priority = static_cast<int>(priority);
  if (prompt_logprobs) options.prompt_logprobs = static_cast<int>(*prompt_logprobs);
  if (prompt_logprobs && options.stream) {
    reader.Fail("prompt_logprobs", "unsupported_field", "is not available when stream is true");
  }
  return options;
}

void ReadMaxTokens(FieldReader& reader, int64_t min, GenerationOptions& options) {
  std::optional<int64_t> completion_tokens;
  reader.Int("max_tokens", min, kMaxInt, options.max_tokens);
  reader.Int("max_completion_tokens", 1, kMaxInt, completion_tokens);
  if (!completion_tokens) return;
  options.max_tokens = completion_tokens;
  options.max_tokens_field = "max_completion_tokens";
}

}  // namespace weightless::router
