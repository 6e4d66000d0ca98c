// One generation request from its prompts to its answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "router/choice.h"
#include "router/dispatcher.h"
#include "router/http_message.h"
#include "router/key_limiter.h"
#include "router/openai_api.h"
#include "router/prompt.h"
#include "router/response_format.h"

namespace weightless::router {

// What is to be generated. Choices are numbered prompt by prompt, n for each.
struct GenerationSpec {
  std::shared_ptr<const ServedModel> model;
  std::string model_name;  // as clients call it
  bool is_chat = false;
  GenerationOptions options;
  SamplingDefaults defaults;
  std::vector<Prompt> prompts;
  bool echo = false;
  std::string request_id;
  std::string key_id;
  absl::Time received_at;
  absl::Time deadline = absl::InfiniteFuture();
};

// Everything outside that a generation uses; all of it outlives the generation. Thread-safe parts.
struct GenerationContext {
  Dispatcher& dispatcher;
  const Clock& clock;
  RouterMetrics& metrics;
};

// Template and tokens are done: submits the sequences, then turns what their streams bring into
// events or one body. Destroyed before its end, it closes the streams and counts as aborted.
class Generation : public Reply {
 public:
  // Checks the prompts against the context and submits. `wake` as in HttpHandler.
  static absl::StatusOr<std::unique_ptr<Reply>> Start(GenerationSpec spec,
                                                      GenerationContext context,
                                                      KeyLimiter::Lease lease,
                                                      std::function<void()> wake);
  ~Generation() override;

  Progress Advance(std::string& out) override;
  bool KeepAlive(std::string& out) override;
  void OnWritten(absl::Time now) override;

 private:
  // One choice under way.
  struct Output {
    Output(const model::Tokenizer& tokenizer, const GenerationOptions& options,
           std::shared_ptr<TokenStream> token_stream, const Prompt& asked)
        : choice(tokenizer, options), stream(std::move(token_stream)), prompt(&asked) {}

    Choice choice;
    std::shared_ptr<TokenStream> stream;
    const Prompt* prompt;
    ChoiceResult result;  // filled when the answer is not streamed
    size_t echo_characters = 0;
    bool started = false;  // its first token is there
    bool done = false;
    int64_t cached_tokens = 0;
    absl::Time placed_at, first_token_at, last_token_at;
  };

  Generation(GenerationSpec spec, GenerationContext context, KeyLimiter::Lease lease);

  absl::Status Submit(const std::vector<int>& budgets, const std::function<void()>& wake);
  void Open(std::string& out);
  void Consume(int index, absl::Time now, std::string& out);
  void Start(int index, TokenBatch& batch, std::string& out);
  void ConsumeToken(int index, TokenEvent& event, std::optional<EndReason> end, std::string& out);
  void Emit(int index, std::string_view text, LoggedToken token, std::string& out);
  void FinishChoice(int index, bool stream_ended, std::string& out);
  Progress Finish(std::string& out);
  Progress Fail(std::string& out);
  void CloseStreams();
  void ObserveChoice(const Output& output);
  void Record(std::string_view outcome);
  Usage CurrentUsage() const;
  const Usage* ContinuousUsage();

  const GenerationSpec spec_;
  const GenerationContext context_;
  KeyLimiter::Lease lease_;  // until the outcome is known
  const bool scores_only_;   // max_tokens 0: the prompt is all that is asked for
  std::unique_ptr<ResponseFormat> format_;
  std::vector<Output> outputs_;
  int num_done_ = 0;
  bool submitted_ = false, recorded_ = false;
  bool opened_ = false;  // the first event has been appended
  bool content_appended_ = false;
  // Of the tokens that the last Advance consumed.
  absl::Time oldest_arrival_ = absl::InfiniteFuture();
  std::optional<absl::Duration> ttft_;
  absl::Status error_;
  Usage continuous_usage_;
};

}  // namespace weightless::router
