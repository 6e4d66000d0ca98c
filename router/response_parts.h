// The pieces of JSON that chat and text completions have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/tokenizer.h"
#include "router/response_format.h"

namespace weightless::router {

// The token as text: itself, or for bytes that are no valid UTF-8 alone "bytes:\xe2\x80".
std::string TokenText(const model::Tokenizer& tokenizer, int32_t token);

void AppendIntArray(std::string& out, std::span<const int32_t> values);
void AppendUsageObject(std::string& out, const Usage& usage);

// `,"finish_reason":..,"stop_reason":..`
void AppendEnding(std::string& out, std::string_view finish_reason,
                  const Choice::StopReason& stop_reason);

// [null,{"<id>":{"logprob":..,"rank":..,"decoded_token":".."},..},..]
void AppendPromptLogprobs(std::string& out, const model::Tokenizer& tokenizer,
                          std::span<const LoggedToken> tokens);

// `"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..`
std::string HeaderFields(const ResponseHeader& header, std::string_view object);

// What ends an event after its choices: the usage field, if events have one, and the end marks.
void AppendEventEnd(std::string& out, const ResponseHeader& header, const Usage* usage);

}  // namespace weightless::router
