// One sequence to generate, as the HTTP side hands it to the engine thread. A request with n
// choices makes n of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace weightless::router {

struct SequenceRequest {
  std::string request_id;
  std::vector<int32_t> prompt;  // BOS included; 1 .. max_context - 1 tokens
  proto::Sampling sampling;     // complete and validated: seed chosen, stop_token_ids resolved
  int max_tokens = 0;           // output tokens; >= 1; prompt + max_tokens <= max_context
  std::optional<uint32_t> prompt_logprobs;
  int priority = 0;        // smaller first
  std::string cache_salt;  // prefixes are shared only under equal salts
  std::string key_id;      // whose fair share this uses; empty without API keys
  absl::Time deadline = absl::InfiniteFuture();
};

}  // namespace weightless::router
