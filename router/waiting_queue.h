// Sequences that wait for a replica. The most urgent class (smallest priority) goes first. Inside a
// class, the key with the least service so far (virtual token counter; Sheng et al. 2024); inside a
// key, sequences that ran before and were preempted or lost their worker come first, oldest first;
// then the others in order of arrival.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/sequence.h"

namespace weightless::router {

// What one key has used in one class. Held by the queue and by the key's live sequences, which
// charge it as they are served.
struct FairAccount {
  // An output token costs a step of its own, a prompt token only its share of one.
  static constexpr int64_t kPromptTokenCost = 1;
  static constexpr int64_t kOutputTokenCost = 2;

  int64_t used = 0;
};

// Owned by the engine thread.
class WaitingQueue {
 public:
  // Appends a new sequence and gives it its account.
  void Push(std::unique_ptr<Sequence> sequence);
  // A sequence that was in the queue before: to the head of its key, in order of arrival.
  void PushReturned(std::unique_ptr<Sequence> sequence);

  // What goes next; null when nothing waits. Stays the same until something is pushed, popped or
  // charged.
  Sequence* Head();
  // Takes the head. Requires one.
  std::unique_ptr<Sequence> PopHead();
  // Takes every sequence for which `condition` holds, in no order.
  std::vector<std::unique_ptr<Sequence>> Take(
      const std::function<bool(const Sequence&)>& condition);

  size_t size() const { return size_; }

 private:
  using List = std::deque<std::unique_ptr<Sequence>>;
  struct Key {
    std::shared_ptr<FairAccount> account = std::make_shared<FairAccount>();
    List returned, waiting;

    bool empty() const { return returned.empty() && waiting.empty(); }
  };
  struct Class {
    std::map<std::string, Key> keys;
    int64_t floor = 0;  // `used` of the key that was served last: newcomers start here
  };

  // The key whose first sequence goes next, or null; and the class it belongs to.
  struct Choice {
    Key* key = nullptr;
    Class* of = nullptr;

    List& list() const { return key->returned.empty() ? key->waiting : key->returned; }
  };
  Choice Choose();
  static void ForgetIdleKeys(Class& of);

  std::map<int, Class> classes_;
  size_t size_ = 0;
};

}  // namespace weightless::router
