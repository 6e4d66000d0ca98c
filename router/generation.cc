#include "router/generation.h"

#include <algorithm>

#include "common/check.h"
#include "common/concat.h"
#include "common/log.h"
#include "common/status.h"
#include "router/api_error.h"
#include "router/random_id.h"

namespace weightless::router {
namespace {

// What a text completion gets that names no max_tokens, as in the original API.
constexpr int64_t kDefaultCompletionTokens = 16;
// Of all choices of a request together. A prompt token takes 4 bytes; a log-probability takes 80 to
// 170 until the client has read it, which in a stream it may do as late as it likes.
constexpr int64_t kMaxPromptTokens = int64_t{1} << 22;
constexpr int64_t kMaxTotalLogprobs = int64_t{1} << 22;

bool IsEos(const ServedModel& model, int32_t token) {
  const auto& ids = model.description.model().eos_token_ids();
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

Counter& OutcomeCounter(RouterMetrics& metrics, std::string_view outcome) {
  if (outcome == "stop") return metrics.requests_stop;
  if (outcome == "length") return metrics.requests_length;
  if (outcome == "error") return metrics.requests_error;
  return metrics.requests_aborted;
}

ResponseHeader MakeHeader(const GenerationSpec& spec) {
  const std::string& identity = spec.model->description.model().weight_identity();
  ResponseHeader header;
  header.id = Concat(spec.is_chat ? "chatcmpl-" : "cmpl-", RandomHexId());
  header.created = absl::ToUnixSeconds(spec.received_at);
  header.model = spec.model_name;
  header.system_fingerprint = Concat("fp_", identity.substr(0, 10));
  header.with_logprobs = spec.options.logprobs.has_value();
  header.with_prompt_logprobs = spec.options.prompt_logprobs.has_value();
  header.with_token_ids = spec.options.return_token_ids;
  header.with_usage = spec.options.include_usage;
  return header;
}

// Positions of a prompt with what the model thought of each token; the first has no probability.
std::vector<LoggedToken> LogPrompt(const model::Tokenizer& tokenizer, const Prompt& prompt,
                                   bool skip_special, std::vector<proto::Logprobs>& logprobs) {
  std::vector<LoggedToken> logged(prompt.tokens.size());
  model::Detokenizer detokenizer(tokenizer, skip_special && !prompt.from_text);
  size_t offset = 0;
  for (size_t i = 0; i < logged.size(); ++i) {
    logged[i].token = prompt.tokens[i];
    logged[i].text_offset = offset;
    if (i > 0 && i <= logprobs.size()) logged[i].logprobs = std::move(logprobs[i - 1]);
    if (i > 0 || !prompt.added_bos) offset += NumCharacters(detokenizer.Push(prompt.tokens[i]));
  }
  return logged;
}

std::string_view PromptField(const GenerationSpec& spec) {
  return spec.is_chat ? "messages" : "prompt";
}

// Alternatives for each token of the prompts; absent when their log-probabilities are not wanted.
std::optional<int> PromptLogprobs(const GenerationSpec& spec) {
  if (spec.options.prompt_logprobs) return spec.options.prompt_logprobs;
  return spec.echo ? spec.options.logprobs : std::nullopt;
}

absl::Status CheckLogprobs(std::string_view field, int alternatives, int64_t num_tokens,
                           std::string_view of) {
  const int64_t num_logprobs = num_tokens * (alternatives + 1);
  if (num_logprobs <= kMaxTotalLogprobs) return absl::OkStatus();
  return FieldError(
      field, "out_of_range",
      Concat(field, " ", alternatives, " asks for ", num_logprobs, " log-probabilities of the ",
             num_tokens, " ", of, " tokens of all choices, more than ", kMaxTotalLogprobs));
}

// Output tokens of a choice of a request that does not say; null: as many as there is room for.
std::optional<int64_t> DefaultBudget(const GenerationSpec& spec) {
  if (!spec.is_chat) return kDefaultCompletionTokens;
  if (!spec.options.logprobs) return std::nullopt;
  return kMaxTotalLogprobs / (spec.options.n * (int64_t{*spec.options.logprobs} + 1));
}

// What may be in memory at once.
absl::Status CheckTotals(const GenerationSpec& spec, int64_t num_prompt_tokens,
                         int64_t num_output_tokens) {
  const GenerationOptions& options = spec.options;
  if (num_prompt_tokens > kMaxPromptTokens) {
    return FieldError(PromptField(spec), "out_of_range",
                      Concat("the choices have ", num_prompt_tokens,
                             " prompt tokens together, more than ", kMaxPromptTokens));
  }
  if (const std::optional<int> alternatives = PromptLogprobs(spec)) {
    RETURN_IF_ERROR(CheckLogprobs(options.prompt_logprobs ? "prompt_logprobs" : "logprobs",
                                  *alternatives, num_prompt_tokens, "prompt"));
  }
  if (!options.logprobs) return absl::OkStatus();
  return CheckLogprobs(spec.is_chat ? "top_logprobs" : "logprobs", *options.logprobs,
                       num_output_tokens, "output");
}

// Output tokens of each prompt's choices; errors as in OutputBudget.
absl::StatusOr<std::vector<int>> OutputBudgets(const GenerationSpec& spec, LengthLimit limit) {
  std::vector<int> budgets;
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
  for (const Prompt& prompt : spec.prompts) {
    const auto prompt_len = static_cast<int64_t>(prompt.tokens.size());
    if (prompt_len == 0) return FieldError("prompt", "out_of_range", "the prompt is empty");
    ASSIGN_OR_RETURN(const int budget, OutputBudget(PromptField(spec), prompt_len, spec.options,
                                                    DefaultBudget(spec), limit));
    if (spec.options.min_tokens > budget) {
      return FieldError("min_tokens", "out_of_range",
                        Concat("min_tokens ", spec.options.min_tokens, " exceeds ",
                               spec.options.max_tokens_field, " ", budget));
    }
    budgets.push_back(std::max(budget, 1));
    num_prompt_tokens += prompt_len * spec.options.n;
    num_output_tokens += int64_t{budget} * spec.options.n;
  }
  RETURN_IF_ERROR(CheckTotals(spec, num_prompt_tokens, num_output_tokens));
  return budgets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reply>> Generation::Start(GenerationSpec spec,
                                                         GenerationContext context,
                                                         KeyLimiter::Lease lease,
                                                         std::function<void()> wake) {
  ASSIGN_OR_RETURN(const std::vector<int> budgets,
                   OutputBudgets(spec, context.dispatcher.length_limit()));
  std::unique_ptr<Generation> generation(
      new Generation(std::move(spec), context, std::move(lease)));
  RETURN_IF_ERROR(generation->Submit(budgets, wake));
  return std::unique_ptr<Reply>(std::move(generation));
}

Generation::Generation(GenerationSpec spec, GenerationContext context, KeyLimiter::Lease lease)
    : spec_(std::move(spec)),
      context_(context),
      lease_(std::move(lease)),
      scores_only_(spec_.options.max_tokens == 0),
      format_(spec_.is_chat ? MakeChatFormat(MakeHeader(spec_), *spec_.model->tokenizer)
                            : MakeCompletionFormat(MakeHeader(spec_), *spec_.model->tokenizer)) {}

Generation::~Generation() {
  if (!submitted_ || recorded_) return;
  CloseStreams();
  Record("aborted");
}

absl::Status Generation::Submit(const std::vector<int>& budgets,
                                const std::function<void()>& wake) {
  const GenerationOptions& options = spec_.options;
  const int64_t seed = options.seed.value_or(RandomSeed());
  std::vector<SequenceRequest> sequences;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (size_t p = 0; p < spec_.prompts.size(); ++p) {
    for (int i = 0; i < options.n; ++i) {
      SequenceRequest& sequence = sequences.emplace_back();
      sequence.request_id = spec_.request_id;
      sequence.prompt = spec_.prompts[p].tokens;
      sequence.sampling = MakeSampling(options, spec_.defaults, spec_.model->description.model(),
                                       options.seed ? seed : RandomSeed(), options.seed ? i : 0);
      sequence.max_tokens = budgets[p];
      sequence.priority = options.priority;
      sequence.cache_salt = options.cache_salt;
      sequence.key_id = spec_.key_id;
      sequence.deadline = spec_.deadline;
      if (const std::optional<int> alternatives = PromptLogprobs(spec_)) {
        sequence.prompt_logprobs = static_cast<uint32_t>(*alternatives);
      }
      streams.push_back(std::make_shared<TokenStream>(wake));
      outputs_.emplace_back(*spec_.model->tokenizer, options, streams.back(), spec_.prompts[p]);
    }
  }
  absl::Status status = context_.dispatcher.Submit(std::move(sequences), std::move(streams));
  if (absl::IsInvalidArgument(status)) return WithParam(std::move(status), PromptField(spec_));
  RETURN_IF_ERROR(status);
  submitted_ = true;
  lease_.Charge(CurrentUsage().prompt_tokens);
  context_.metrics.requests_started.Add();
  context_.metrics.requests_running.Add(1);
  context_.metrics.prepare_seconds.Observe(
      absl::ToDoubleSeconds(context_.clock.Now() - spec_.received_at));
  context_.metrics.vllm.choices.Observe(options.n);
  if (options.max_tokens) {
    context_.metrics.vllm.max_tokens.Observe(static_cast<double>(*options.max_tokens));
  }
  return absl::OkStatus();
}

Reply::Progress Generation::Advance(std::string& out) {
  const absl::Time now = context_.clock.Now();
  oldest_arrival_ = absl::InfiniteFuture();
  for (int i = 0; i < static_cast<int>(outputs_.size()) && error_.ok(); ++i) {
    if (!outputs_[static_cast<size_t>(i)].done) Consume(i, now, out);
  }
  if (!error_.ok()) return Fail(out);
  if (num_done_ == static_cast<int>(outputs_.size())) return Finish(out);
  return {.streaming = opened_, .done = false, .whole = std::nullopt};
}

void Generation::Consume(int index, absl::Time now, std::string& out) {
  Output& output = outputs_[static_cast<size_t>(index)];
  TokenBatch batch = output.stream->Take();
  if (batch.tokens.empty() && !batch.end) return;
  const int64_t num_before = output.choice.num_tokens();
  if (!batch.tokens.empty()) {
    oldest_arrival_ = std::min(oldest_arrival_, batch.arrived_at);
    if (!output.started) {
      Start(index, batch, out);
      output.placed_at = batch.placed_at;
      output.first_token_at = now;
    } else {
      context_.metrics.itl_seconds.Observe(absl::ToDoubleSeconds(now - output.last_token_at));
    }
    output.last_token_at = now;
  }
  for (size_t i = 0; i < batch.tokens.size() && !output.done; ++i) {
    if (i > 0) context_.metrics.itl_seconds.Observe(0);  // tokens that come together
    const bool last = i + 1 == batch.tokens.size();
    ConsumeToken(index, batch.tokens[i], last ? batch.end : std::nullopt, out);
  }
  const int64_t num_generated = output.choice.num_tokens() - num_before;
  context_.metrics.generated_tokens.Add(static_cast<double>(num_generated));
  lease_.Charge(num_generated);
  if (output.done || !batch.end) return;
  if (batch.end == EndReason::kError) {
    error_ = std::move(batch.status);
    return;
  }
  Emit(index, output.choice.EndAtLength(), {}, out);
  FinishChoice(index, /*stream_ended=*/true, out);
}

void Generation::Open(std::string& out) {
  if (std::exchange(opened_, true)) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    format_->AppendOpening(out, static_cast<int>(i), outputs_[i].prompt->tokens, ContinuousUsage());
  }
}

bool Generation::KeepAlive(std::string& out) {
  if (!spec_.options.stream) return false;
  Open(out);
  out += ": keep-alive\n\n";
  return true;
}

// The first token: what was learnt about the prompt, and the echo.
void Generation::Start(int index, TokenBatch& batch, std::string& out) {
  Output& output = outputs_[static_cast<size_t>(index)];
  const GenerationOptions& options = spec_.options;
  if (std::none_of(outputs_.begin(), outputs_.end(), [](const Output& o) { return o.started; })) {
    context_.metrics.vllm.ttft_seconds.Observe(
        absl::ToDoubleSeconds(context_.clock.Now() - spec_.received_at));
  }
  output.started = true;
  output.cached_tokens = batch.num_cached_tokens;
  output.result.prompt_token_ids = output.prompt->tokens;
  std::vector<LoggedToken> logged;
  if (PromptLogprobs(spec_)) {
    logged = LogPrompt(*spec_.model->tokenizer, *output.prompt, options.skip_special_tokens,
                       batch.prompt_logprobs);
  }
  if (options.stream) Open(out);
  if (spec_.echo) {
    output.echo_characters = NumCharacters(output.prompt->text);
    const auto shown =
        options.logprobs ? std::span<const LoggedToken>(logged) : std::span<const LoggedToken>();
    if (options.stream) {
      format_->AppendPiece(out, index, {output.prompt->text, shown, {}}, ContinuousUsage());
    } else {
      output.result.text = output.prompt->text;
      output.result.logprobs.assign(shown.begin(), shown.end());
    }
  }
  if (options.prompt_logprobs) output.result.prompt_logprobs = std::move(logged);
}

void Generation::ConsumeToken(int index, TokenEvent& event, std::optional<EndReason> end,
                              std::string& out) {
  Output& output = outputs_[static_cast<size_t>(index)];
  Choice& choice = output.choice;
  if (scores_only_) return FinishChoice(index, end.has_value(), out);
  LoggedToken token{.token = event.token,
                    .text_offset = output.echo_characters + choice.num_characters(),
                    .logprobs = std::move(event.logprobs)};
  const bool is_stop_token = end == EndReason::kStop;
  std::string text = is_stop_token
                         ? choice.PushStopToken(event.token, IsEos(*spec_.model, event.token))
                         : choice.Push(event.token);
  if (end == EndReason::kLength && !choice.finished()) text += choice.EndAtLength();
  Emit(index, text, std::move(token), out);
  if (choice.finished()) FinishChoice(index, end.has_value(), out);
}

// Sends or keeps `text` with the token it came with; token.token is -1 when it came with none.
void Generation::Emit(int index, std::string_view text, LoggedToken token, std::string& out) {
  Output& output = outputs_[static_cast<size_t>(index)];
  const bool is_token = token.token >= 0;
  const bool with_logprobs = is_token && spec_.options.logprobs && token.logprobs;
  if (!spec_.options.stream) {
    output.result.text += text;
    if (is_token && spec_.options.return_token_ids) output.result.token_ids.push_back(token.token);
    if (with_logprobs) output.result.logprobs.push_back(std::move(token));
    content_appended_ = true;
    return;
  }
  Piece piece{.text = text, .logprobs = {}, .token_ids = {}};
  if (with_logprobs) piece.logprobs = std::span(&token, 1);
  if (is_token && spec_.options.return_token_ids) piece.token_ids = std::span(&token.token, 1);
  if (text.empty() && piece.logprobs.empty() && piece.token_ids.empty()) return;
  format_->AppendPiece(out, index, piece, ContinuousUsage());
  content_appended_ = true;
}

void Generation::FinishChoice(int index, bool stream_ended, std::string& out) {
  Output& output = outputs_[static_cast<size_t>(index)];
  const std::string_view reason = scores_only_ ? "length" : output.choice.finish_reason();
  output.done = true;
  ++num_done_;
  if (!stream_ended) {
    output.stream->Close();
    context_.dispatcher.NotifyClosed();
  }
  output.result.finish_reason = reason;
  output.result.stop_reason = output.choice.stop_reason();
  ObserveChoice(output);
  if (output.choice.num_tokens() > 0) content_appended_ = true;  // though perhaps an empty one
  if (!spec_.options.stream) return;
  format_->AppendFinish(out, index, reason, output.choice.stop_reason(), ContinuousUsage());
}

void Generation::ObserveChoice(const Output& output) {
  if (!output.started) return;
  RouterMetrics& metrics = context_.metrics;
  const auto seconds = [](absl::Duration time) { return absl::ToDoubleSeconds(time); };
  const absl::Duration decode = output.last_token_at - output.first_token_at;
  metrics.prefill_seconds.Observe(seconds(output.first_token_at - output.placed_at));
  metrics.vllm.decode_seconds.Observe(seconds(decode));
  metrics.vllm.inference_seconds.Observe(seconds(output.last_token_at - output.placed_at));
  const int64_t num_tokens = output.choice.num_tokens();
  if (num_tokens < 2) return;
  metrics.tpot_seconds.Observe(seconds(decode) / static_cast<double>(num_tokens - 1));
}

Reply::Progress Generation::Finish(std::string& out) {
  const bool any_length = std::any_of(outputs_.begin(), outputs_.end(), [](const Output& output) {
    return output.result.finish_reason == "length";
  });
  Record(any_length ? "length" : "stop");
  const Usage usage = CurrentUsage();
  if (spec_.options.stream) {
    if (spec_.options.include_usage) format_->AppendUsage(out, usage);
    out += kDoneEvent;
    return {.streaming = true, .done = true, .whole = std::nullopt};
  }
  std::vector<ChoiceResult> results;
  for (Output& output : outputs_) results.push_back(std::move(output.result));
  HttpResponse response;
  response.body = format_->Whole(results, usage);
  return {.streaming = false, .done = true, .whole = std::move(response)};
}

Reply::Progress Generation::Fail(std::string& out) {
  CloseStreams();
  Record("error");
  LogWarning("request_failed", {{"request_id", spec_.request_id}, {"reason", error_.ToString()}});
  if (!opened_) return {.streaming = false, .done = true, .whole = ErrorResponse(error_)};
  out += "data: ";
  out += ErrorBody(ToApiError(error_));
  out += "\n\n";
  out += kDoneEvent;
  return {.streaming = true, .done = true, .whole = std::nullopt};
}

void Generation::CloseStreams() {
  for (Output& output : outputs_) {
    if (!output.done) output.stream->Close();
  }
  context_.dispatcher.NotifyClosed();
}

void Generation::OnWritten(absl::Time now) {
  if (oldest_arrival_ <= now) {
    context_.metrics.deliver_seconds.Observe(absl::ToDoubleSeconds(now - oldest_arrival_));
  }
  if (!content_appended_ || ttft_) return;
  ttft_ = now - spec_.received_at;
  context_.metrics.ttft_seconds.Observe(absl::ToDoubleSeconds(*ttft_));
}

void Generation::Record(std::string_view outcome) {
  recorded_ = true;
  lease_.Release();  // before the client can know that the request is over
  const Usage usage = CurrentUsage();
  const absl::Duration e2e = context_.clock.Now() - spec_.received_at;
  RouterMetrics& metrics = context_.metrics;
  metrics.requests_running.Add(-1);
  metrics.e2e_seconds.Observe(absl::ToDoubleSeconds(e2e));
  metrics.request_prompt_tokens.Observe(static_cast<double>(usage.prompt_tokens));
  metrics.request_output_tokens.Observe(static_cast<double>(usage.completion_tokens));
  metrics.vllm.computed_prompt_tokens.Observe(
      static_cast<double>(usage.prompt_tokens - usage.cached_tokens));
  int64_t longest = 0;
  for (const Output& output : outputs_) longest = std::max(longest, output.choice.num_tokens());
  metrics.vllm.longest_output_tokens.Observe(static_cast<double>(longest));
  OutcomeCounter(metrics, outcome).Add();
  LogInfo("finished", {{"request_id", spec_.request_id},
                       {"outcome", outcome},
                       {"prompt_tokens", usage.prompt_tokens},
                       {"cached_tokens", usage.cached_tokens},
                       {"output_tokens", usage.completion_tokens},
                       {"choices", outputs_.size()},
                       {"e2e_s", absl::ToDoubleSeconds(e2e)}});
}

Usage Generation::CurrentUsage() const {
  Usage usage;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    usage.completion_tokens += outputs_[i].choice.num_tokens();
    if (i % static_cast<size_t>(spec_.options.n) != 0) continue;
    usage.prompt_tokens += static_cast<int64_t>(outputs_[i].prompt->tokens.size());
    usage.cached_tokens += outputs_[i].cached_tokens;
  }
  return usage;
}

const Usage* Generation::ContinuousUsage() {
  if (!spec_.options.include_usage || !spec_.options.continuous_usage_stats) return nullptr;
  continuous_usage_ = CurrentUsage();
  return &continuous_usage_;
}

}  // namespace weightless::router
