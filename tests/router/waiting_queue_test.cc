#include "router/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace weightless::router {
namespace {

constexpr int64_t kAnyLen = 1 << 20;

std::unique_ptr<Sequence> Make(uint64_t id, std::string key = "", int priority = 0,
                               int num_prompt_tokens = 10) {
  auto sequence = std::make_unique<Sequence>();
  sequence->sequence_id = id;
  sequence->num_prompt_tokens = num_prompt_tokens;
  sequence->request.key_id = std::move(key);
  sequence->request.priority = priority;
  return sequence;
}

std::unique_ptr<Sequence> PopHead(WaitingQueue& queue) { return queue.Pop(*queue.Head(kAnyLen)); }

std::vector<uint64_t> PopAll(WaitingQueue& queue) {
  std::vector<uint64_t> ids;
  while (queue.size() > 0) ids.push_back(PopHead(queue)->sequence_id);
  return ids;
}

TEST(WaitingQueueTest, OneKeyIsServedInOrderOfArrival) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) queue.Push(Make(id));
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(WaitingQueueTest, SmallerPriorityGoesFirst) {
  WaitingQueue queue;
  queue.Push(Make(1, "", 5));
  queue.Push(Make(2, "", -1));
  queue.Push(Make(3, "", 0));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(2, 3, 1));
}

TEST(WaitingQueueTest, ReturnedSequencesGoFirstOfTheirKeyOldestFirst) {
  WaitingQueue queue;
  queue.Push(Make(7));
  queue.Push(Make(8, "", 1));
  queue.PushReturned(Make(5));
  queue.PushReturned(Make(3));
  queue.PushReturned(Make(4, "", 1));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(3, 5, 7, 4, 8));
}

TEST(WaitingQueueTest, KeysTakeTurnsHoweverManyWait) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 50; ++id) queue.Push(Make(id, "flood"));
  for (uint64_t id = 101; id <= 103; ++id) queue.Push(Make(id, "quiet"));
  std::vector<uint64_t> ids = PopAll(queue);
  ids.resize(6);
  EXPECT_THAT(ids, testing::ElementsAre(1, 101, 2, 102, 3, 103));
}

TEST(WaitingQueueTest, WhatAFloodingKeyGotBackDoesNotGoBeforeTheOthers) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(Make(id, "flood"));
  auto preempted = PopHead(queue);
  preempted->account->used += 100;
  queue.PushReturned(std::move(preempted));
  queue.Push(Make(101, "quiet"));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(101, 1, 2, 3));
}

TEST(WaitingQueueTest, PriorityOrdersInsideAKeyAlone) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(Make(id, "urgent", -1));
  queue.Push(Make(101, "modest", 5));
  queue.Push(Make(102, "modest", 4));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(102, 1, 101, 2, 3));
}

TEST(WaitingQueueTest, WhatIsTooLongIsPassedOverAndKeepsItsPlace) {
  WaitingQueue queue;
  queue.Push(Make(1, "a", 0, 100));
  queue.Push(Make(2, "a", 0, 10));
  queue.Push(Make(3, "b", 0, 50));
  EXPECT_EQ(queue.Head(9), nullptr);
  EXPECT_EQ(queue.Pop(*queue.Head(40))->sequence_id, 2u);
  EXPECT_EQ(queue.Head(40), nullptr);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(3, 1));
}

TEST(WaitingQueueTest, OutputCountsAgainstItsKey) {
  WaitingQueue queue;
  queue.Push(Make(1, "a"));
  queue.Push(Make(2, "a"));
  queue.Push(Make(11, "b"));
  queue.Push(Make(12, "b"));
  const auto first = PopHead(queue);
  first->account->used += 100 * FairAccount::kOutputTokenCost;
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(11, 12, 2));
}

TEST(WaitingQueueTest, AKeyThatWasAwayHasNoCredit) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 20; ++id) queue.Push(Make(id, "busy"));
  for (int i = 0; i < 10; ++i) PopHead(queue);
  for (uint64_t id = 101; id <= 120; ++id) queue.Push(Make(id, "new"));
  std::map<bool, int> served;
  for (int i = 0; i < 10; ++i) ++served[PopHead(queue)->sequence_id > 100];
  EXPECT_NEAR(served[true], 5, 1);
}

TEST(WaitingQueueTest, TakesWhatMeetsTheCondition) {
  WaitingQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) queue.Push(Make(id, id % 2 == 0 ? "a" : "b"));
  queue.PushReturned(Make(6));
  const auto taken =
      queue.Take([](const Sequence& sequence) { return sequence.sequence_id % 2 == 0; });
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(1, 3));
}

}  // namespace
}  // namespace weightless::router
