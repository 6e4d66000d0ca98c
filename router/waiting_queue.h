// Sequences that wait for a replica. The key with the least service so far goes first (virtual
// token counter; Sheng et al. 2024). Inside a key: the smallest priority; then sequences that ran
// before and were preempted or lost their worker, oldest first; then the others in order of
// arrival. Sequences that only a worker which is away holds are passed over and keep their place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "router/sequence.h"

namespace weightless::router {

// What one key has used. Held by the queue and by the key's live sequences, which charge it as they
// are served.
struct FairAccount {
  // An output token costs a step of its own, a prompt token only its share of one.
  static constexpr int64_t kPromptTokenCost = 1;
  static constexpr int64_t kOutputTokenCost = 2;

  int64_t used = 0;
};

// Owned by the engine thread.
class WaitingQueue {
 public:
  // Gives it its account. The id of one that was never placed is larger than any before.
  void Push(std::unique_ptr<Sequence> sequence);

  // The longest sequence, in tokens, that may go next; 0 at first.
  void SetMaxLen(int64_t max_len);
  int64_t max_len() const { return max_len_; }

  // What goes next; null when nothing can. Stays the same until something is pushed, popped or
  // charged, or the longest changes.
  Sequence* Head() const;
  // Takes what Head gave.
  std::unique_ptr<Sequence> Pop(const Sequence& head);
  // Takes every sequence for which `condition` holds, in no order.
  std::vector<std::unique_ptr<Sequence>> Take(
      const std::function<bool(const Sequence&)>& condition);

  size_t size() const { return size_; }

 private:
  using Place = std::tuple<int, bool, uint64_t>;  // priority, never placed, sequence_id
  struct Key {
    std::shared_ptr<FairAccount> account = std::make_shared<FairAccount>();
    std::map<Place, std::unique_ptr<Sequence>> waiting;
  };

  static Place PlaceOf(const Sequence& sequence);
  Sequence* HeadOf(const Key& key) const;
  void ForgoCredit(const Key& key) const;
  void ForgetIdleKeys();

  std::map<std::string, Key> keys_;
  int64_t max_len_ = 0;
  int64_t floor_ = 0;  // `used` of the key that was served last: newcomers start here
  size_t size_ = 0;
};

}  // namespace weightless::router
