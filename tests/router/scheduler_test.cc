#include "router/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "router/waiting_queue.h"
#include "tests/router/cluster.h"
#include "tests/support/fake_engine.h"

namespace weightless::router {
namespace {

using ::testing::ElementsAre;
using testing::FakeEngine;
using testing::FakeModel;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeRequest;
using testing::TinyGeometry;

const PrefixHasher kHasher(1, 2);

// A scheduler and the engine that executes its plans.
struct Replica {
  explicit Replica(const proto::Geometry& geometry = TinyGeometry(), int max_chunk_tokens = 0)
      : description(testing::FakeDescription(model, geometry)),
        scheduler({.geometry = geometry,
                   .vocab_size = model.vocab_size,
                   .max_chunk_tokens = max_chunk_tokens,
                   .hasher = &kHasher}),
        engine(model, geometry) {}

  std::unique_ptr<Sequence> Make(SequenceRequest request) {
    auto sequence = MakeSequence(std::move(request), nullptr, description, kHasher);
    sequence->sequence_id = ++num_sequences;
    sequence->account = account;
    return sequence;
  }
  Sequence* Admit(SequenceRequest request) {
    auto sequence = Make(std::move(request));
    Sequence* admitted = sequence.get();
    scheduler.Admit(std::move(sequence));
    return admitted;
  }
  // Makes a plan and keeps it in flight.
  proto::StepPlan Plan() {
    auto plan = scheduler.Schedule();
    scheduler.CheckInvariants();
    if (!plan.has_value()) return {};
    plans.push_back(*plan);
    return *plan;
  }
  // Executes the oldest plan and commits its result.
  absl::Status Commit() {
    auto result = engine.Step(plans.front());
    plans.pop_front();
    if (!result.ok()) return result.status();
    const absl::Status status = scheduler.Commit(*result, outcome);
    scheduler.CheckInvariants();
    return status;
  }
  // Commits what is in flight and goes on until nothing runs.
  void Finish() {
    while (!plans.empty() || Plan().step() != 0) ASSERT_TRUE(Commit().ok());
  }

  FakeModel model;
  proto::Description description;
  Scheduler scheduler;
  FakeEngine engine;
  std::deque<proto::StepPlan> plans;
  StepOutcome outcome;
  uint64_t num_sequences = 0;
  std::shared_ptr<FairAccount> account = std::make_shared<FairAccount>();  // unless a test's own
};

TEST(SchedulerTest, PlansNothingWithoutSequences) {
  Replica replica;
  EXPECT_FALSE(replica.scheduler.Schedule().has_value());
}

TEST(SchedulerTest, PrefillsInChunksAndSamplesWithTheLast) {
  Replica replica(TinyGeometry(), 8);
  replica.Admit(MakeRequest(20, 5));
  std::vector<uint32_t> chunks;
  for (int i = 0; i < 3; ++i) {
    const proto::StepPlan plan = replica.Plan();
    ASSERT_EQ(plan.prefill_size(), 1);
    chunks.push_back(plan.prefill(0).num_tokens());
    ASSERT_TRUE(replica.Commit().ok());
    EXPECT_EQ(replica.outcome.emissions.size(), i == 2 ? 1u : 0u);
  }
  EXPECT_THAT(chunks, ElementsAre(8, 8, 4));
}

TEST(SchedulerTest, DecodesGoBeforePrefillAndALongPromptTakesOneChunkOfAStep) {
  Replica replica(TinyGeometry(), 8);
  replica.Admit(MakeRequest(4, 100, 1));
  replica.Plan();
  replica.Admit(MakeRequest(100, 5, 2));
  const proto::StepPlan plan = replica.Plan();
  EXPECT_EQ(plan.decode().slots_size(), 1);
  ASSERT_EQ(plan.prefill_size(), 1);
  EXPECT_EQ(plan.prefill(0).num_tokens(), 8u);
}

TEST(SchedulerTest, StepBudgetIsSharedByDecodesAndChunks) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_max_step_tokens(10);
  Replica replica(geometry);
  for (int i = 1; i <= 4; ++i) replica.Admit(MakeRequest(2, 50, i));
  replica.Plan();
  replica.Admit(MakeRequest(100, 5, 9));
  EXPECT_EQ(replica.Plan().prefill(0).num_tokens(), 6u);
}

TEST(SchedulerTest, ASteadyDecodePlanIsAFewBytes) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_block_size(64);
  Replica replica(geometry);
  for (int i = 1; i <= 8; ++i) replica.Admit(MakeRequest(3, 50, i));
  replica.Plan();
  EXPECT_EQ(replica.Plan().decode().slots_size(), 8);
  EXPECT_LE(replica.Plan().ByteSizeLong(), 2u);
}

TEST(SchedulerTest, NeverPlansPastMaxTokens) {
  Replica replica;
  replica.Admit(MakeRequest(5, 3));
  for (int i = 0; i < 3; ++i) EXPECT_NE(replica.Plan().step(), 0u);
  EXPECT_EQ(replica.Plan().step(), 0u);  // all three tokens are in flight
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(replica.Commit().ok());
  ASSERT_EQ(replica.outcome.finished.size(), 1u);
  EXPECT_EQ(replica.outcome.finished[0]->num_output_tokens(), 3);
}

TEST(SchedulerTest, ASecondTurnFindsTheFirst) {
  Replica replica;
  SequenceRequest request = MakeRequest(21, 20);
  replica.Admit(request);
  replica.Finish();
  std::vector<int32_t> history = replica.outcome.finished[0]->tokens;  // 41, the last not computed
  EXPECT_EQ(replica.scheduler.pools().full().num_cached(), 10);

  SequenceRequest second = request;
  second.prompt = history;
  second.prompt.push_back(1);
  Sequence* sequence = replica.Admit(second);
  EXPECT_EQ(sequence->num_cached_tokens, 40);
  replica.Finish();  // the engine checks what it finds
}

TEST(SchedulerTest, TheStopTokenIsNotInTheCache) {
  // Its K and V would be computed by a step that the worker skips. Find a stop token that fills a
  // block.
  bool found = false;
  for (int64_t seed = 1; seed < 200 && !found; ++seed) {
    Replica replica;
    SequenceRequest request = MakeRequest(6, 100, seed);
    request.sampling.clear_stop_token_ids();
    const std::vector<int32_t> free_run =
        testing::ExpectedOutput(replica.model, request.prompt, request.sampling, 10);
    request.sampling.add_stop_token_ids(free_run[9]);  // changes the draws, too: look again
    const std::vector<int32_t> output =
        testing::ExpectedOutput(replica.model, request.prompt, request.sampling, 100);
    if ((request.prompt.size() + output.size()) % 4 != 0 || output.size() == 100) continue;
    found = true;
    replica.Admit(request);
    for (int i = 0; i < 3; ++i) replica.Plan();  // plans that go past the stop token
    while (!replica.plans.empty()) {
      ASSERT_TRUE(replica.Commit().ok());
      replica.Plan();
    }
    SequenceRequest second = MakeRequest(1, 5, 999);
    second.prompt = request.prompt;
    second.prompt.insert(second.prompt.end(), output.begin(), output.end());
    second.prompt.push_back(1);
    Sequence* sequence = replica.Admit(second);
    EXPECT_EQ(*sequence->num_cached_tokens, static_cast<int>(second.prompt.size()) - 5);
    replica.Finish();
  }
  EXPECT_TRUE(found);
}

TEST(SchedulerTest, OneTokenIsAlwaysLeftToCompute) {
  Replica replica;
  replica.Admit(MakeRequest(16, 2));
  replica.Finish();
  EXPECT_EQ(replica.Admit(MakeRequest(16, 2))->num_cached_tokens, 12);
}

TEST(SchedulerTest, OtherSaltFindsNothing) {
  Replica replica;
  replica.Admit(MakeRequest(16, 2));
  replica.Finish();
  SequenceRequest salted = MakeRequest(16, 2);
  salted.cache_salt = "mine";
  EXPECT_EQ(replica.Admit(salted)->num_cached_tokens, 0);
}

TEST(SchedulerTest, PromptLogprobsComputeEverything) {
  Replica replica;
  replica.Admit(MakeRequest(16, 2));
  replica.Finish();
  SequenceRequest request = MakeRequest(16, 2);
  request.prompt_logprobs = 1;
  Sequence* sequence = replica.Admit(request);
  EXPECT_EQ(sequence->num_cached_tokens, 0);
  replica.Plan();
  ASSERT_TRUE(replica.Commit().ok());
  EXPECT_EQ(sequence->prompt_logprobs.size(), 15u);
}

TEST(SchedulerTest, ChoicesShareThePromptOfTheFirst) {
  Replica replica;
  replica.Admit(MakeRequest(30, 5, 1));
  replica.Plan();
  replica.Plan();  // the first plan's blocks are offered from here on
  SequenceRequest choice = MakeRequest(30, 5, 1);
  choice.sampling.set_seed(2);
  EXPECT_EQ(replica.Admit(choice)->num_cached_tokens, 28);
  replica.Finish();
}

TEST(SchedulerTest, SlidingPoolHoldsTheWindowOnly) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_sliding_blocks(4);  // window 10 touches at most 4 blocks of 4
  Replica replica(geometry);
  replica.Admit(MakeRequest(60, 60));
  while (replica.Plan().step() != 0) {
    ASSERT_LE(replica.scheduler.pools().sliding().num_used(), 4);
    ASSERT_TRUE(replica.Commit().ok());
  }
  EXPECT_EQ(replica.outcome.finished.size(), 1u);
}

// Two sequences of 10 blocks each at the end, in a pool of 12.
TEST(SchedulerTest, PreemptsTheNewestAndKeepsWhatIsInFlight) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_full_blocks(12);
  geometry.set_max_step_tokens(64);
  Replica replica(geometry);
  replica.Admit(MakeRequest(20, 20, 1));
  replica.Admit(MakeRequest(20, 20, 2));
  std::vector<std::unique_ptr<Sequence>> preempted;
  replica.Plan();
  while (preempted.empty()) {
    replica.Plan();
    ASSERT_TRUE(replica.Commit().ok());
    preempted = replica.scheduler.TakePreempted();
  }
  ASSERT_EQ(preempted.size(), 1u);
  EXPECT_EQ(preempted[0]->sequence_id, 2u);
  EXPECT_EQ(replica.scheduler.num_preemptions(), 1u);
  // One token with its prefill, four up to the border of its sixth block: nothing computed is lost.
  EXPECT_EQ(preempted[0]->num_output_tokens(), 5);
  replica.Finish();
}

TEST(SchedulerTest, PreemptsTheLeastUrgentClass) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_full_blocks(12);
  Replica replica(geometry);
  SequenceRequest late = MakeRequest(20, 20, 1);
  late.priority = 1;
  replica.Admit(late);
  replica.Admit(MakeRequest(20, 20, 2));
  std::vector<std::unique_ptr<Sequence>> preempted;
  while (preempted.empty()) {
    replica.Plan();
    ASSERT_TRUE(replica.Commit().ok());
    preempted = replica.scheduler.TakePreempted();
  }
  EXPECT_EQ(preempted[0]->sequence_id, 1u);
}

TEST(SchedulerTest, NeverPreemptsTheSameSequenceTwiceInARow) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_full_blocks(16);
  Replica replica(geometry);
  for (int i = 1; i <= 3; ++i) replica.Admit(MakeRequest(8, 50, i));
  std::deque<std::unique_ptr<Sequence>> waiting;
  std::vector<uint64_t> victims;
  for (int step = 0; step < 1000; ++step) {
    while (!waiting.empty() && replica.scheduler.Examine(*waiting.front()).can_start) {
      replica.scheduler.Admit(std::move(waiting.front()));
      waiting.pop_front();
    }
    replica.Plan();
    if (replica.plans.empty()) break;
    ASSERT_TRUE(replica.Commit().ok());
    for (auto& sequence : replica.scheduler.TakePreempted()) {
      victims.push_back(sequence->sequence_id);
      waiting.push_front(std::move(sequence));
    }
  }
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(replica.scheduler.num_running(), 0);
  EXPECT_GE(victims.size(), 2u);
  EXPECT_EQ(std::adjacent_find(victims.begin(), victims.end()), victims.end());
}

TEST(SchedulerTest, RemovedSequenceIsReleasedByTheNextPlan) {
  Replica replica;
  Sequence* leaving = replica.Admit(MakeRequest(8, 50, 1));
  replica.Admit(MakeRequest(8, 50, 2));
  replica.Plan();
  replica.Plan();
  const uint32_t slot = leaving->on.slot;
  replica.scheduler.Remove(*leaving);
  EXPECT_EQ(replica.scheduler.pools().full().num_used(), 3);
  const proto::StepPlan plan = replica.Plan();
  EXPECT_THAT(plan.release(), ElementsAre(slot));
  EXPECT_EQ(plan.decode().slots_size(), 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(replica.Commit().ok());
}

TEST(SchedulerTest, SaysWhetherASequenceFitsAlone) {
  proto::Geometry geometry = TinyGeometry();
  geometry.set_num_full_blocks(10);
  EXPECT_EQ(Replica(geometry).scheduler.max_sequence_len(), 41);  // the last is never computed
  geometry.set_num_sliding_blocks(3);                             // less than a window
  EXPECT_EQ(Replica(geometry).scheduler.max_sequence_len(), 13);
}

// Commits a result that `mangle` has changed; returns the complaint.
template <typename Mangle>
std::string Complaint(Mangle mangle) {
  Replica replica;
  replica.Admit(MakeRequest(8, 50, 1));
  replica.Plan();
  proto::StepResult result = *replica.engine.Step(replica.plans.front());
  mangle(result);
  return std::string(replica.scheduler.Commit(result, replica.outcome).message());
}

TEST(SchedulerTest, RefusesFaultyResults) {
  using Result = proto::StepResult;
  EXPECT_THAT(Complaint([](Result& r) { r.set_step(2); }), HasSubstr("step 2, expected 1"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->set_slot(99); }),
              HasSubstr("slot 99 did not run"));
  EXPECT_THAT(Complaint([](Result& r) { *r.add_slots() = r.slots(0); }),
              HasSubstr("has two results"));
  EXPECT_THAT(Complaint([](Result& r) { r.clear_slots(); }), HasSubstr("no result for slot"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->clear_token(); }),
              HasSubstr("has no token, expected one"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->set_token(-1); }),
              HasSubstr("token -1, outside the vocabulary of 1000"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->set_token(1000); }),
              HasSubstr("outside the vocabulary"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->mutable_logprobs(); }),
              HasSubstr("logprobs that were not asked for"));
  EXPECT_THAT(Complaint([](Result& r) { r.mutable_slots(0)->add_prompt_logprobs(); }),
              HasSubstr("more than 0 prompt logprobs"));
  EXPECT_THAT(Complaint([](Result&) {}), IsEmpty());
}

SequenceRequest OfKey(SequenceRequest request, const std::string& key, int priority = 0) {
  request.key_id = key;
  request.priority = priority;
  return request;
}

TEST(SchedulerTest, KeysShareTheSlotsWhileBothWantThem) {
  Replica replica;
  for (int i = 1; i <= 8; ++i) replica.Admit(OfKey(MakeRequest(4, 50, i), "flood"));
  replica.Plan();
  ASSERT_TRUE(replica.Commit().ok());
  EXPECT_FALSE(replica.scheduler.MakeRoomFor(*replica.Make(OfKey(MakeRequest(4, 5), "flood"))));
  for (const uint64_t newest : {8, 7, 6, 5}) {
    auto waiting = replica.Make(OfKey(MakeRequest(4, 50, 100 + static_cast<int>(newest)), "quiet"));
    EXPECT_FALSE(replica.scheduler.Examine(*waiting).can_start);
    EXPECT_TRUE(replica.scheduler.MakeRoomFor(*waiting));
    const auto preempted = replica.scheduler.TakePreempted();
    ASSERT_EQ(preempted.size(), 1u);
    EXPECT_EQ(preempted[0]->sequence_id, newest);
    replica.scheduler.Admit(std::move(waiting));
    replica.scheduler.CheckInvariants();
  }
  EXPECT_FALSE(replica.scheduler.MakeRoomFor(*replica.Make(OfKey(MakeRequest(4, 5), "quiet"))));
  replica.Finish();
}

TEST(SchedulerTest, PrioritySavesNoKeyFromYieldingToAnother) {
  Replica replica;
  for (int i = 1; i <= 8; ++i)
    replica.Admit(OfKey(MakeRequest(4, 50, i), "flood", i == 3 ? 0 : -1));
  replica.Plan();
  ASSERT_TRUE(replica.Commit().ok());
  EXPECT_TRUE(replica.scheduler.MakeRoomFor(*replica.Make(OfKey(MakeRequest(4, 5), "quiet", 7))));
  const auto yielded = replica.scheduler.TakePreempted();
  ASSERT_EQ(yielded.size(), 1u);
  EXPECT_EQ(yielded[0]->sequence_id, 3u);  // the least urgent one of its key
}

TEST(SchedulerTest, TheKeyWithTheLeastServicePrefillsFirst) {
  Replica replica(TinyGeometry(), /*max_chunk_tokens=*/8);
  const auto served = std::make_shared<FairAccount>(), idle = std::make_shared<FairAccount>();
  served->used = 1000;
  replica.Admit(OfKey(MakeRequest(16, 5, 1), "flood"))->account = served;
  replica.Admit(OfKey(MakeRequest(8, 5, 2), "quiet"))->account = idle;
  const proto::StepPlan plan = replica.Plan();
  ASSERT_EQ(plan.prefill_size(), 1);
  EXPECT_EQ(plan.prefill(0).slot(), 1u);
}

}  // namespace
}  // namespace weightless::router
