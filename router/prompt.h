// From what a request says to what the engine is given: token ids, sampling, length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "router/dispatcher.h"
#include "router/openai_api.h"

namespace weightless::router {

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;        // what echo gives back
  bool from_text = false;  // `tokens` come from `text`, control tokens included
  bool added_bos = false;  // tokens[0] is the BOS that the text did not have
};

// Renders and tokenises; exactly one BOS. Breaking the template's rules is kInvalidArgument about
// `messages`.
absl::StatusOr<Prompt> ChatPrompt(const model::Tokenizer& tokenizer, const ChatRequest& request);

// A text gets one BOS unless it begins with it or `add_bos` is false; token ids are used as given.
Prompt CompletionPrompt(const model::Tokenizer& tokenizer, const PromptInput& input, bool add_bos,
                        bool skip_special_tokens);

// Output tokens a sequence may have: what was asked for, else what the limit leaves (on the workers
// that are ready, if they have room for the prompt), but not more than `otherwise` if that is
// given. kInvalidArgument `context_length_exceeded` names the numbers, and is about `prompt_field`
// or the field that asked.
absl::StatusOr<int> OutputBudget(std::string_view prompt_field, int64_t prompt_len,
                                 const GenerationOptions& options, std::optional<int64_t> otherwise,
                                 LengthLimit limit);

// The sampling of choice `choice_idx`, whose seed is `seed` + choice_idx.
proto::Sampling MakeSampling(const GenerationOptions& options, const SamplingDefaults& defaults,
                             const proto::ModelCard& model, int64_t seed, int choice_idx);

}  // namespace weightless::router
