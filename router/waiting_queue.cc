#include "router/waiting_queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace weightless::router {

namespace {

// Idle keys are remembered, so that going idle for a moment does not wipe out what was used, up to
// this many.
constexpr size_t kMaxKeys = 4096;

}  // namespace

WaitingQueue::Place WaitingQueue::PlaceOf(const Sequence& sequence) {
  return {sequence.request.priority, !sequence.was_placed(), sequence.sequence_id};
}

void WaitingQueue::Push(std::unique_ptr<Sequence> sequence) {
  if (keys_.size() >= kMaxKeys) ForgetIdleKeys();
  Key& key = keys_[sequence->request.key_id];
  const Place place = PlaceOf(*sequence);
  if (!sequence->was_placed()) ForgoCredit(key);
  sequence->account = key.account;
  key.waiting.emplace(place, std::move(sequence));
  ++size_;
}

void WaitingQueue::SetMaxLen(int64_t max_len) {
  for (const auto& [id, key] : keys_) ForgoCredit(key);
  max_len_ = max_len;
}

// A key of which nothing could go next has no claim to what it did not use then.
void WaitingQueue::ForgoCredit(const Key& key) const {
  if (HeadOf(key) == nullptr) key.account->used = std::max(key.account->used, floor_);
}

Sequence* WaitingQueue::HeadOf(const Key& key) const {
  for (const auto& [place, sequence] : key.waiting) {
    if (sequence->max_len() <= max_len_) return sequence.get();
  }
  return nullptr;
}

Sequence* WaitingQueue::Head() const {
  Sequence* head = nullptr;
  for (const auto& [id, key] : keys_) {
    if (head != nullptr && key.account->used >= head->account->used) continue;
    if (Sequence* sequence = HeadOf(key)) head = sequence;
  }
  return head;
}

std::unique_ptr<Sequence> WaitingQueue::Pop(const Sequence& head) {
  Key& key = keys_.at(head.request.key_id);
  const auto place = key.waiting.find(PlaceOf(head));
  CHECK(place != key.waiting.end());
  std::unique_ptr<Sequence> sequence = std::move(place->second);
  key.waiting.erase(place);
  --size_;
  if (!sequence->was_placed()) {
    floor_ = std::max(floor_, key.account->used);
    key.account->used += sequence->num_prompt_tokens * FairAccount::kPromptTokenCost;
  }
  return sequence;
}

std::vector<std::unique_ptr<Sequence>> WaitingQueue::Take(
    const std::function<bool(const Sequence&)>& condition) {
  std::vector<std::unique_ptr<Sequence>> taken;
  for (auto& [id, key] : keys_) {
    for (auto entry = key.waiting.begin(); entry != key.waiting.end();) {
      if (condition(*entry->second)) {
        taken.push_back(std::move(entry->second));
        entry = key.waiting.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  size_ -= taken.size();
  return taken;
}

void WaitingQueue::ForgetIdleKeys() {
  std::erase_if(keys_, [](const auto& entry) {
    return entry.second.waiting.empty() && entry.second.account.use_count() == 1;
  });
}

}  // namespace weightless::router
