// The JSON of one generation request.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "loadtest/config.h"
#include "loadtest/dataset.h"

namespace weightless::loadtest {

class RequestWriter {
 public:
  // kInvalidArgument when config.extra_body is not a JSON object.
  static absl::StatusOr<RequestWriter> Make(const Config& config, const std::string& model);

  // "/v1/chat/completions" or "/v1/completions".
  const char* path() const;
  // Always streamed, with the usage at the end.
  std::string Body(const Prompt& prompt) const;

 private:
  Endpoint endpoint_ = Endpoint::kChat;
  std::string common_;  // the members that no prompt changes, each with a comma before it
};

// The header lines that go with every call: type and authorisation.
std::string CommonHeaders(const Config& config);

}  // namespace weightless::loadtest
