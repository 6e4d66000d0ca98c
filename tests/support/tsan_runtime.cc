// What thread sanitizer cannot know of the distribution's libraries, which are not instrumented:
// that absl::Mutex and CondVar synchronise. The definitions here stand before the library's, call
// them, and tell the sanitizer what was acquired and released. Linked into every program of the
// tsan preset; gRPC's own locks go the same way.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <cstring>

#include "absl/synchronization/mutex.h"

// Calls from these into the C library are not looked at: they synchronise by atomics of their own.
// What they call of ours is.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"  // spin locks
         "called_from_lib:libabsl_malloc_internal.so\n"       // likewise
         "called_from_lib:libabsl_cord.so\n"                  // counted references
         "called_from_lib:libabsl_status.so\n"                // likewise
         "called_from_lib:libabsl_strings.so\n"               // on strings gRPC passes around
         "called_from_lib:libabsl_time.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "race:libabsl_random_internal_pool_urbg.so\n"  // a pool with a lock of its own
         // gRPC does not wait for its pollers at exit.
         "thread:grpc_core::Thread::Thread\n"
         // A worker that is told to stop while it loads leaves at once, whatever its threads do.
         "thread:weightless::worker::Engine::Create\n"
         "called_from_lib:libcrypto.so\n"  // locks and counts of its own
         "called_from_lib:libssl.so\n"
         // A header's parts of gRPC, ordered by counts inside the library.
         "race:^grpc::internal::CallbackWithSuccessTag::\n"
         "race:^grpc::internal::CallbackWithStatusTag::\n"
         // Finish reads the call before it hands it over; the library deletes it after that.
         "race:^grpc::internal::CallbackBidiHandler*::ServerCallbackReaderWriterImpl::Finish\n";
}

namespace {

// The library's function of the same name as `ours`.
template <typename Member>
Member Next(Member ours) {
  void* address = nullptr;
  std::memcpy(&address, &ours, sizeof(address));
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) std::abort();
  void* next = dlsym(RTLD_NEXT, info.dli_sname);
  if (next == nullptr) std::abort();
  Member result = ours;
  std::memcpy(&result, &next, sizeof(next));
  return result;
}

// A condition is evaluated with the mutex held, by whichever thread gives the mutex up.
class Watched {
 public:
  Watched(const absl::Condition& condition, void* mutex)
      : condition_(condition), mutex_(mutex), watched_(&Watched::Eval, this) {}
  const absl::Condition& get() const { return watched_; }

 private:
  static bool Eval(Watched* self) {
    __tsan_acquire(self->mutex_);
    const bool holds = self->condition_.Eval();
    __tsan_release(self->mutex_);
    return holds;
  }

  const absl::Condition& condition_;
  void* const mutex_;
  const absl::Condition watched_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto next = Next(&Mutex::Lock);
  (this->*next)();
  __tsan_acquire(this);
}
void Mutex::Unlock() {
  static const auto next = Next(&Mutex::Unlock);
  __tsan_release(this);
  (this->*next)();
}
bool Mutex::TryLock() {
  static const auto next = Next(&Mutex::TryLock);
  const bool locked = (this->*next)();
  if (locked) __tsan_acquire(this);
  return locked;
}
void Mutex::ReaderLock() {
  static const auto next = Next(&Mutex::ReaderLock);
  (this->*next)();
  __tsan_acquire(this);
}
void Mutex::ReaderUnlock() {
  static const auto next = Next(&Mutex::ReaderUnlock);
  __tsan_release(this);
  (this->*next)();
}
void Mutex::LockWhen(const Condition& condition) {
  static const auto next = Next(&Mutex::LockWhen);
  (this->*next)(Watched(condition, this).get());
  __tsan_acquire(this);
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Next(&Mutex::LockWhenWithTimeout);
  const bool holds = (this->*next)(Watched(condition, this).get(), timeout);
  __tsan_acquire(this);
  return holds;
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Next(&Mutex::LockWhenWithDeadline);
  const bool holds = (this->*next)(Watched(condition, this).get(), deadline);
  __tsan_acquire(this);
  return holds;
}
void Mutex::Await(const Condition& condition) {
  static const auto next = Next(&Mutex::Await);
  __tsan_release(this);
  (this->*next)(Watched(condition, this).get());
  __tsan_acquire(this);
}
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Next(&Mutex::AwaitWithTimeout);
  __tsan_release(this);
  const bool holds = (this->*next)(Watched(condition, this).get(), timeout);
  __tsan_acquire(this);
  return holds;
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Next(&Mutex::AwaitWithDeadline);
  __tsan_release(this);
  const bool holds = (this->*next)(Watched(condition, this).get(), deadline);
  __tsan_acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next = Next(&CondVar::Wait);
  __tsan_release(mutex);
  (this->*next)(mutex);
  __tsan_acquire(mutex);
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = Next(&CondVar::WaitWithTimeout);
  __tsan_release(mutex);
  const bool timed_out = (this->*next)(mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = Next(&CondVar::WaitWithDeadline);
  __tsan_release(mutex);
  const bool timed_out = (this->*next)(mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
