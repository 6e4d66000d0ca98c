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

void WaitingQueue::Push(std::unique_ptr<Sequence> sequence) {
  if (keys_.size() >= kMaxKeys) ForgetIdleKeys();
  Key& key = keys_[sequence->request.key_id];
  // Who was away has no claim to what it did not use then.
  if (key.waiting.empty()) key.account->used = std::max(key.account->used, floor_);
  sequence->account = key.account;
  const Place place{sequence->request.priority, true, sequence->sequence_id};
  key.waiting.emplace(place, std::move(sequence));
  ++size_;
}

void WaitingQueue::PushReturned(std::unique_ptr<Sequence> sequence) {
  Key& key = keys_[sequence->request.key_id];
  sequence->account = key.account;
  const Place place{sequence->request.priority, false, sequence->sequence_id};
  key.waiting.emplace(place, std::move(sequence));
  ++size_;
}

Sequence* WaitingQueue::Head(int64_t max_len) const {
  Sequence* head = nullptr;
  for (const auto& [id, key] : keys_) {
    if (head != nullptr && key.account->used >= head->account->used) continue;
    for (const auto& [place, sequence] : key.waiting) {
      if (sequence->max_len() > max_len) continue;
      head = sequence.get();
      break;
    }
  }
  return head;
}

std::unique_ptr<Sequence> WaitingQueue::Pop(const Sequence& head) {
  Key& key = keys_.at(head.request.key_id);
  const int priority = head.request.priority;
  auto place = key.waiting.find({priority, false, head.sequence_id});
  const bool is_new = place == key.waiting.end();
  if (is_new) place = key.waiting.find({priority, true, head.sequence_id});
  CHECK(place != key.waiting.end());
  std::unique_ptr<Sequence> sequence = std::move(place->second);
  key.waiting.erase(place);
  --size_;
  if (is_new) {
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
