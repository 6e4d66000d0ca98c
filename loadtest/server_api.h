// The few calls besides generation: models, tokens, metrics. They block and have connections of
// their own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/http_client.h"

namespace weightless::loadtest {

// Not thread-safe.
class ServerApi {
 public:
  // `headers` go with every call, whole lines with CRLF.
  ServerApi(Url url, TlsOptions tls, std::string headers);
  ~ServerApi();

  // Resolves the server's name.
  absl::Status Open();

  // The id of the first model of /v1/models.
  absl::StatusOr<std::string> FirstModel();

  // Tokens of each text, without special tokens. Knows the /tokenize of vLLM (and ours), of the
  // llama.cpp server and /extras/tokenize of llama-cpp-python; kUnimplemented when none answers.
  absl::StatusOr<std::vector<size_t>> CountTokens(const std::string& model,
                                                  const std::vector<std::string>& texts);

  // The body of a GET, from the root of the server.
  absl::StatusOr<std::string> Get(std::string_view path);

 private:
  struct Answer;
  struct Dialect;

  std::vector<Answer> Call(std::string_view method, const std::string& path,
                           const std::vector<std::string>& bodies);
  absl::StatusOr<std::vector<size_t>> CountWith(const Dialect& dialect, const std::string& model,
                                                const std::vector<std::string>& texts);

  struct Loop;
  std::unique_ptr<Loop> loop_;
  const std::string headers_;
  const Dialect* dialect_ = nullptr;  // the one that answered
};

}  // namespace weightless::loadtest
