// What a coroutine waits for until another part of its thread says go.
#pragma once

#include <memory>
#include <utility>

namespace weightless::router {

// Used on one thread, by one waiting coroutine.
class CoroutineEvent {
 public:
  // Resumes who waits; without a waiter it is remembered, once.
  void Set() {
    set_ = true;
    if (const auto waiter = std::exchange(waiter_, nullptr)) waiter->Resume();
  }
  // Whether it was set since it was last taken.
  bool Take() { return std::exchange(set_, false); }
  // Calls `handler`, a completion handler without arguments, at the next Set.
  template <typename Handler>
  void Hold(Handler handler) {
    waiter_ = std::make_unique<WaiterOf<Handler>>(std::move(handler));
  }

 private:
  struct Waiter {
    virtual ~Waiter() = default;
    virtual void Resume() = 0;
  };
  template <typename Handler>
  struct WaiterOf : Waiter {
    explicit WaiterOf(Handler&& h) : handler(std::move(h)) {}
    void Resume() override { std::move(handler)(); }
    Handler handler;
  };

  bool set_ = false;
  std::unique_ptr<Waiter> waiter_;
};

}  // namespace weightless::router
