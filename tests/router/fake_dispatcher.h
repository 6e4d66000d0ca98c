// A Dispatcher whose engine is the test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/dispatcher.h"

namespace weightless::router {

// The tiny model's words under the name "tiny", with a context of `max_context` tokens; end of
// sequence is 1 or 15 (<eos>, <end_of_turn>).
std::shared_ptr<const ServedModel> TinyModel(int max_context = 1024);

// The ids of a text, without BOS.
std::vector<int32_t> Ids(const ServedModel& model, std::string_view text);

// A batch of tokens without probabilities, perhaps the last one.
TokenBatch Tokens(const std::vector<int32_t>& ids, std::optional<EndReason> end = std::nullopt);

// Thread-safe.
class FakeDispatcher : public Dispatcher {
 public:
  // Called for each sequence submitted, without a lock; puts what it likes.
  using Answer = std::function<void(const SequenceRequest&, TokenStream&)>;

  explicit FakeDispatcher(std::shared_ptr<const ServedModel> model) : model_(std::move(model)) {}

  void AnswerWith(Answer answer);
  // Every sequence says `text` and ends.
  void AnswerWithText(std::string_view text, EndReason end = EndReason::kLength);
  // What Admit and Submit say from now on.
  void Refuse(absl::Status status);
  // What Submit alone says, though Admit agreed.
  void RefuseSequences(absl::Status status);
  void SetModel(std::shared_ptr<const ServedModel> model);
  void SetReady(bool ready);
  // Until then it is the model's context.
  void SetLengthLimit(LengthLimit limit);

  // Waits until so many sequences have been submitted, and returns them and their streams.
  std::vector<SequenceRequest> WaitForSequences(size_t count);
  std::shared_ptr<TokenStream> stream(size_t index);
  size_t num_submitted() const;
  // Waits until NotifyClosed has been called.
  bool WaitForClosed();

  std::shared_ptr<const ServedModel> model() const override;
  absl::Status Admit(const std::string& key_id, int num_sequences) const override;
  LengthLimit length_limit() const override;
  absl::Status Submit(std::vector<SequenceRequest> sequences,
                      std::vector<std::shared_ptr<TokenStream>> streams) override;
  void NotifyClosed() override;
  Loads loads() const override;
  void Drain(absl::Time) override {}

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const ServedModel> model_ ABSL_GUARDED_BY(mutex_);
  Answer answer_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  absl::Status sequence_refusal_ ABSL_GUARDED_BY(mutex_);
  std::optional<LengthLimit> length_limit_ ABSL_GUARDED_BY(mutex_);
  bool ready_ ABSL_GUARDED_BY(mutex_) = true;
  int num_closed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<SequenceRequest> sequences_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<TokenStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weightless::router
