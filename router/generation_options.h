// What a generation request may ask for beyond its prompt: the fields chat and text completions
// share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightless::router {

class FieldReader;

inline constexpr int kMaxLogprobs = 20;  // alternatives of one token

// Absent means that the request did not say; the model's generation config may then.
struct GenerationOptions {
  std::string model;
  int n = 1;
  std::optional<int64_t> max_tokens;
  std::string_view max_tokens_field = "max_tokens";  // or max_completion_tokens: where it was said
  int64_t min_tokens = 0;

  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;  // 0 = all
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<int32_t, double> logit_bias;
  std::optional<int64_t> seed;

  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;

  std::optional<int> logprobs;  // alternatives per output token
  std::optional<int> prompt_logprobs;
  bool return_token_ids = false;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;

  int priority = 0;
  std::string cache_salt;
  int num_unknown_fields = 0;
};

// What the served model and the queue take.
struct RequestLimits {
  int vocab_size = 0;
  int max_sequences = 0;  // prompts * n
};

// Reads the shared fields of a body; errors stick in `reader`. Fields that only one of the two
// kinds has (logprobs, echo) are left to it.
GenerationOptions ReadGenerationOptions(FieldReader& reader, const RequestLimits& limits);

// max_tokens, at least `min`, and max_completion_tokens, which goes before it.
void ReadMaxTokens(FieldReader& reader, int64_t min, GenerationOptions& options);

}  // namespace weightless::router
