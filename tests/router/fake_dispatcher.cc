#include "tests/router/fake_dispatcher.h"

#include <fstream>
#include <sstream>

#include "common/check.h"

namespace weightless::router {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  CHECK(file.good());
  return text.str();
}

}  // namespace

std::shared_ptr<const ServedModel> TinyModel(int max_context) {
  const std::string folder = std::string(WEIGHTLESS_SOURCE_DIR) + "/models/tiny-gemma3/";
  auto model = std::make_shared<ServedModel>();
  for (const char* name : {"tokenizer.json", "generation_config.json"}) {
    model->files[name] = ReadFile(folder + name);
  }
  auto tokenizer = model::Tokenizer::FromModelFiles(model->files);
  CHECK(tokenizer.ok());
  model->tokenizer = *std::move(tokenizer);
  proto::ModelCard& card = *model->description.mutable_model();
  card.set_name("tiny");
  card.set_vocab_size(static_cast<uint32_t>(model->tokenizer->vocab_size()));
  card.add_eos_token_ids(1);
  card.add_eos_token_ids(15);
  card.set_weight_identity("0123456789abcdef");
  model->description.mutable_geometry()->set_max_context(static_cast<uint32_t>(max_context));
  model->loaded_at = absl::FromUnixSeconds(1700000000);
  return model;
}

std::vector<int32_t> Ids(const ServedModel& model, std::string_view text) {
  return model.tokenizer->Encode(text);
}

TokenBatch Tokens(const std::vector<int32_t>& ids, std::optional<EndReason> end) {
  TokenBatch batch;
  for (const int32_t id : ids) batch.tokens.push_back({.token = id, .logprobs = std::nullopt});
  batch.end = end;
  return batch;
}

void FakeDispatcher::AnswerWith(Answer answer) {
  absl::MutexLock lock(&mutex_);
  answer_ = std::move(answer);
}

void FakeDispatcher::AnswerWithText(std::string_view text, EndReason end) {
  std::vector<int32_t> ids = Ids(*model(), text);
  if (end == EndReason::kStop) ids.push_back(1);
  AnswerWith(
      [ids, end](const SequenceRequest&, TokenStream& stream) { stream.Put(Tokens(ids, end)); });
}

void FakeDispatcher::Refuse(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  refusal_ = std::move(status);
}

void FakeDispatcher::RefuseSequences(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  sequence_refusal_ = std::move(status);
}

void FakeDispatcher::SetModel(std::shared_ptr<const ServedModel> model) {
  absl::MutexLock lock(&mutex_);
  model_ = std::move(model);
}

void FakeDispatcher::SetReady(bool ready) {
  absl::MutexLock lock(&mutex_);
  ready_ = ready;
}

void FakeDispatcher::SetLengthLimit(LengthLimit limit) {
  absl::MutexLock lock(&mutex_);
  length_limit_ = limit;
}

LengthLimit FakeDispatcher::length_limit() const {
  absl::MutexLock lock(&mutex_);
  return length_limit_.value_or(
      LengthLimit{.num_tokens = model_->description.geometry().max_context()});
}

std::vector<SequenceRequest> FakeDispatcher::WaitForSequences(size_t count) {
  absl::MutexLock lock(&mutex_);
  const auto enough = [this, count]()
                          ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return sequences_.size() >= count; };
  CHECK(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  return sequences_;
}

std::shared_ptr<TokenStream> FakeDispatcher::stream(size_t index) {
  absl::MutexLock lock(&mutex_);
  return streams_.at(index);
}

size_t FakeDispatcher::num_submitted() const {
  absl::MutexLock lock(&mutex_);
  return sequences_.size();
}

bool FakeDispatcher::WaitForClosed() {
  absl::MutexLock lock(&mutex_);
  const auto closed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_closed_ > 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&closed), kPatience);
}

std::shared_ptr<const ServedModel> FakeDispatcher::model() const {
  absl::MutexLock lock(&mutex_);
  return model_;
}

absl::Status FakeDispatcher::Admit(const std::string&, int) const {
  absl::MutexLock lock(&mutex_);
  return refusal_;
}

absl::Status FakeDispatcher::Submit(std::vector<SequenceRequest> sequences,
                                    std::vector<std::shared_ptr<TokenStream>> streams) {
  Answer answer;
  {
    absl::MutexLock lock(&mutex_);
    if (!refusal_.ok()) return refusal_;
    if (!sequence_refusal_.ok()) return sequence_refusal_;
    answer = answer_;
    sequences_.insert(sequences_.end(), sequences.begin(), sequences.end());
    streams_.insert(streams_.end(), streams.begin(), streams.end());
  }
  for (size_t i = 0; answer && i < sequences.size(); ++i) answer(sequences[i], *streams[i]);
  return absl::OkStatus();
}

void FakeDispatcher::NotifyClosed() {
  absl::MutexLock lock(&mutex_);
  ++num_closed_;
}

Loads FakeDispatcher::loads() const {
  absl::MutexLock lock(&mutex_);
  Loads loads;
  loads.replicas.push_back({.address = "fake:1", .ready = ready_, .num_running = 2});
  loads.num_queued = 3;
  return loads;
}

}  // namespace weightless::router
