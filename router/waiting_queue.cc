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
  Class& of = classes_[sequence->request.priority];
  if (of.keys.size() >= kMaxKeys) ForgetIdleKeys(of);
  Key& key = of.keys[sequence->request.key_id];
  // Who was away has no claim to what it did not use then.
  if (key.empty()) key.account->used = std::max(key.account->used, of.floor);
  sequence->account = key.account;
  key.waiting.push_back(std::move(sequence));
  ++size_;
}

void WaitingQueue::PushReturned(std::unique_ptr<Sequence> sequence) {
  Key& key = classes_[sequence->request.priority].keys[sequence->request.key_id];
  sequence->account = key.account;
  List& returned = key.returned;
  const auto place = std::lower_bound(
      returned.begin(), returned.end(), sequence->sequence_id,
      [](const std::unique_ptr<Sequence>& entry, uint64_t id) { return entry->sequence_id < id; });
  returned.insert(place, std::move(sequence));
  ++size_;
}

WaitingQueue::Choice WaitingQueue::Choose() {
  for (auto& [priority, of] : classes_) {
    Key* best = nullptr;
    for (auto& [id, key] : of.keys) {
      if (key.empty()) continue;
      if (best == nullptr || key.account->used < best->account->used) best = &key;
    }
    if (best != nullptr) return {.key = best, .of = &of};
  }
  return {};
}

Sequence* WaitingQueue::Head() {
  if (size_ == 0) return nullptr;
  return Choose().list().front().get();
}

std::unique_ptr<Sequence> WaitingQueue::PopHead() {
  const Choice choice = Choose();
  CHECK(choice.key != nullptr);
  const bool is_new = choice.key->returned.empty();
  List& list = choice.list();
  std::unique_ptr<Sequence> sequence = std::move(list.front());
  list.pop_front();
  --size_;
  if (is_new) {
    choice.of->floor = std::max(choice.of->floor, sequence->account->used);
    sequence->account->used += sequence->num_prompt_tokens * FairAccount::kPromptTokenCost;
  }
  return sequence;
}

std::vector<std::unique_ptr<Sequence>> WaitingQueue::Take(
    const std::function<bool(const Sequence&)>& condition) {
  std::vector<std::unique_ptr<Sequence>> taken;
  const auto take_from = [&](List& list) {
    const auto first = std::stable_partition(
        list.begin(), list.end(), [&](const auto& sequence) { return !condition(*sequence); });
    std::move(first, list.end(), std::back_inserter(taken));
    list.erase(first, list.end());
  };
  for (auto& [priority, of] : classes_) {
    for (auto& [id, key] : of.keys) {
      take_from(key.returned);
      take_from(key.waiting);
    }
  }
  size_ -= taken.size();
  return taken;
}

void WaitingQueue::ForgetIdleKeys(Class& of) {
  std::erase_if(of.keys, [](const auto& entry) {
    return entry.second.empty() && entry.second.account.use_count() == 1;
  });
}

}  // namespace weightless::router
