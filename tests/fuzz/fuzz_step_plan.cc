// Step plans over arbitrary bytes: a chain of plans, each as its length (two bytes, little-endian)
// and its wire form.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "common/check.h"
#include "proto/worker.pb.h"
#include "worker/slots.h"

using namespace weightless;
using namespace weightless::worker;

namespace {

constexpr PlanLimits kLimits{.vocab_size = 300,
                             .num_slots = 4,
                             .max_context = 200,
                             .max_step_tokens = 50,
                             .sliding_window = 70,
                             .num_full_blocks = 9,
                             .num_sliding_blocks = 7};

// What the forward pass relies on.
void CheckRuns(std::span<const Run> runs, const Slots& slots) {
  int num_tokens = 0;
  std::set<int> seen;
  for (const Run& run : runs) {
    const Sequence& sequence = slots.sequence(run.slot);
    CHECK(seen.insert(run.slot).second && sequence.in_use && !sequence.ended);
    CHECK(run.first >= 0 && run.num_tokens > 0);
    CHECK(run.end() <= sequence.num_tokens);
    CHECK(run.end() <= kLimits.max_context);
    num_tokens += run.num_tokens;
    for (int position = 0; position < run.end(); ++position) {
      const auto entry = static_cast<size_t>(position / 64);
      CHECK(sequence.full_blocks[entry] >= 0 &&
            sequence.full_blocks[entry] < kLimits.num_full_blocks);
      if (position <= run.first - kLimits.sliding_window) continue;
      CHECK(sequence.sliding_blocks[entry] >= 0 &&
            sequence.sliding_blocks[entry] < kLimits.num_sliding_blocks);
    }
    for (const int32_t token : sequence.known_tokens) {
      CHECK(token >= 0 && token < kLimits.vocab_size);
    }
  }
  CHECK(num_tokens <= kLimits.max_step_tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const google::protobuf::LogSilencer no_log_line_for_every_bad_string;
  Slots slots(kLimits);
  while (size >= 2) {
    const size_t length = std::min(size_t{data[0]} | size_t{data[1]} << 8, size - 2);
    proto::StepPlan plan;
    if (!plan.ParseFromArray(data + 2, static_cast<int>(length))) return 0;
    data += 2 + length;
    size -= 2 + length;
    plan.set_step(slots.step() + 1);
    const auto runs = slots.Apply(plan);
    if (!runs.ok()) {
      slots.Reset();
      continue;
    }
    CheckRuns(*runs, slots);
    for (const Run& run : *runs) slots.Commit(run);
  }
  return 0;
}
