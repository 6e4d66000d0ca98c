#include "router/prompt.h"

#include <algorithm>
#include <limits>

#include "common/concat.h"
#include "common/status.h"
#include "router/api_error.h"

namespace weightless::router {

absl::StatusOr<Prompt> ChatPrompt(const model::Tokenizer& tokenizer, const ChatRequest& request) {
  auto pieces = model::RenderGemma3Chat(request.messages, request.chat);
  if (!pieces.ok()) return WithParam(std::move(pieces).status(), "messages");
  Prompt prompt;
  prompt.tokens = tokenizer.Encode(*pieces);
  return prompt;
}

Prompt CompletionPrompt(const model::Tokenizer& tokenizer, const PromptInput& input, bool add_bos,
                        bool skip_special_tokens) {
  Prompt prompt;
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) {
    prompt.tokens = *ids;
    prompt.text = tokenizer.Decode(*ids, skip_special_tokens);
    return prompt;
  }
  prompt.from_text = true;
  prompt.text = std::get<std::string>(input);
  prompt.tokens = tokenizer.Encode(prompt.text);
  const int32_t bos = tokenizer.bos_id();
  if (add_bos && bos >= 0 && (prompt.tokens.empty() || prompt.tokens.front() != bos)) {
    prompt.tokens.insert(prompt.tokens.begin(), bos);
    prompt.added_bos = true;
  }
  return prompt;
}

absl::StatusOr<int> OutputBudget(std::string_view prompt_field, int64_t prompt_len,
                                 const GenerationOptions& options, std::optional<int64_t> otherwise,
                                 LengthLimit limit) {
  const std::optional<int64_t> asked = options.max_tokens;
  const int64_t left = limit.num_tokens - prompt_len;
  const std::string room =
      Concat(limit.cause == LengthLimit::Cause::kContext ? "the context of "
                                                         : "the workers' KV blocks for ",
             limit.num_tokens, " tokens");
  if (left < 1) {
    return FieldError(
        prompt_field, "context_length_exceeded",
        Concat("the prompt has ", prompt_len, " tokens, which leaves no room in ", room));
  }
  if (asked && *asked > left) {
    return FieldError(
        options.max_tokens_field, "context_length_exceeded",
        Concat("the prompt has ", prompt_len, " tokens and ", options.max_tokens_field, " is ",
               *asked, "; together they exceed ", room));
  }
  if (asked) return static_cast<int>(*asked);
  const int64_t left_on_ready = limit.num_ready_tokens - prompt_len;
  const int64_t most = left_on_ready >= 1 ? left_on_ready : left;  // else it waits for one away
  return static_cast<int>(std::min(most, otherwise.value_or(most)));
}

proto::Sampling MakeSampling(const GenerationOptions& options, const SamplingDefaults& defaults,
                             const proto::ModelCard& model, int64_t seed, int choice_idx) {
  proto::Sampling sampling;
  const auto number = [](const std::optional<double>& asked, double otherwise) {
    return static_cast<float>(asked.value_or(otherwise));
  };
  // To a worker 0 means that a rule is off; the smallest wish must not become that.
  const auto above_zero = [&](const std::optional<double>& asked, double otherwise) {
    return std::max(number(asked, otherwise), std::numeric_limits<float>::min());
  };
  sampling.set_temperature(number(options.temperature, defaults.temperature));
  sampling.set_top_k(static_cast<uint32_t>(options.top_k.value_or(defaults.top_k)));
  sampling.set_top_p(above_zero(options.top_p, defaults.top_p));
  sampling.set_min_p(number(options.min_p, defaults.min_p));
  sampling.set_repetition_penalty(
      above_zero(options.repetition_penalty, defaults.repetition_penalty));
  sampling.set_presence_penalty(static_cast<float>(options.presence_penalty));
  sampling.set_frequency_penalty(static_cast<float>(options.frequency_penalty));
  for (const auto& [token, bias] : options.logit_bias) {
    proto::LogitBias* entry = sampling.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(static_cast<float>(bias));
  }
  // Wraps around at the end of the range, as unsigned numbers do.
  sampling.set_seed(
      static_cast<int64_t>(static_cast<uint64_t>(seed) + static_cast<uint64_t>(choice_idx)));
  if (options.logprobs) sampling.set_logprobs(static_cast<uint32_t>(*options.logprobs));
  for (const int32_t id : options.stop_token_ids) sampling.add_stop_token_ids(id);
  if (!options.ignore_eos) {
    for (const int32_t id : model.eos_token_ids()) sampling.add_stop_token_ids(id);
  }
  sampling.set_min_tokens(static_cast<uint32_t>(options.min_tokens));
  return sampling;
}

}  // namespace weightless::router
