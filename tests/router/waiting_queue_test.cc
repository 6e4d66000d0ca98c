#include "router/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace weightless::router {
namespace {

struct AllRunQueue : WaitingQueue {
  AllRunQueue() { SetMaxLen(1 << 20); }
};

std::unique_ptr<Sequence> Make(uint64_t id, std::string key = "", int priority = 0,
                               int num_prompt_tokens = 10) {
  auto sequence = std::make_unique<Sequence>();
  sequence->sequence_id = id;
  sequence->num_prompt_tokens = num_prompt_tokens;
  sequence->request.key_id = std::move(key);
  sequence->request.priority = priority;
  return sequence;
}

std::unique_ptr<Sequence> Returned(std::unique_ptr<Sequence> sequence) {
  sequence->num_cached_tokens = 0;  // since it was placed
  return sequence;
}

std::unique_ptr<Sequence> PopHead(WaitingQueue& queue) { return queue.Pop(*queue.Head()); }

std::vector<uint64_t> PopAll(WaitingQueue& queue) {
  std::vector<uint64_t> ids;
  while (queue.size() > 0) ids.push_back(PopHead(queue)->sequence_id);
  return ids;
}

TEST(WaitingQueueTest, OneKeyIsServedInOrderOfArrival) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) queue.Push(Make(id));
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(WaitingQueueTest, SmallerPriorityGoesFirst) {
  AllRunQueue queue;
  queue.Push(Make(1, "", 5));
  queue.Push(Make(2, "", -1));
  queue.Push(Make(3, "", 0));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(2, 3, 1));
}

TEST(WaitingQueueTest, ReturnedSequencesGoFirstOfTheirKeyOldestFirst) {
  AllRunQueue queue;
  queue.Push(Make(7));
  queue.Push(Make(8, "", 1));
  queue.Push(Returned(Make(5)));
  queue.Push(Returned(Make(3)));
  queue.Push(Returned(Make(4, "", 1)));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(3, 5, 7, 4, 8));
}

TEST(WaitingQueueTest, KeysTakeTurnsHoweverManyWait) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 50; ++id) queue.Push(Make(id, "flood"));
  for (uint64_t id = 101; id <= 103; ++id) queue.Push(Make(id, "quiet"));
  std::vector<uint64_t> ids = PopAll(queue);
  ids.resize(6);
  EXPECT_THAT(ids, testing::ElementsAre(1, 101, 2, 102, 3, 103));
}

TEST(WaitingQueueTest, WhatAFloodingKeyGotBackDoesNotGoBeforeTheOthers) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(Make(id, "flood"));
  auto preempted = PopHead(queue);
  preempted->account->used += 100;
  queue.Push(Returned(std::move(preempted)));
  queue.Push(Make(101, "quiet"));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(101, 1, 2, 3));
}

TEST(WaitingQueueTest, PriorityOrdersInsideAKeyAlone) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(Make(id, "urgent", -1));
  queue.Push(Make(101, "modest", 5));
  queue.Push(Make(102, "modest", 4));
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(102, 1, 101, 2, 3));
}

TEST(WaitingQueueTest, WhatIsTooLongIsPassedOverAndKeepsItsPlace) {
  AllRunQueue queue;
  queue.Push(Make(1, "a", 0, 100));
  queue.Push(Make(2, "a", 0, 10));
  queue.Push(Make(3, "b", 0, 50));
  queue.SetMaxLen(9);
  EXPECT_EQ(queue.Head(), nullptr);
  queue.SetMaxLen(40);
  EXPECT_EQ(PopHead(queue)->sequence_id, 2u);
  EXPECT_EQ(queue.Head(), nullptr);
  queue.SetMaxLen(100);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(3, 1));
}

TEST(WaitingQueueTest, AKeyThatOnlyAnAbsentWorkerHoldsSavesNoCredit) {
  AllRunQueue queue;
  queue.SetMaxLen(50);
  queue.Push(Make(1, "patient", 0, 51));
  for (uint64_t id = 2; id <= 40; ++id) queue.Push(Make(id, "busy"));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(PopHead(queue)->request.key_id, "busy");
  for (uint64_t id = 101; id <= 120; ++id) queue.Push(Make(id, "patient"));
  std::map<std::string, int> served;
  for (int i = 0; i < 10; ++i) ++served[PopHead(queue)->request.key_id];
  EXPECT_NEAR(served["patient"], 5, 1);
}

TEST(WaitingQueueTest, AKeyWhoseAbsentWorkerComesBackHasNoCredit) {
  AllRunQueue queue;
  queue.SetMaxLen(50);
  for (uint64_t id = 1; id <= 20; ++id) queue.Push(Make(id, "patient", 0, 51));
  for (uint64_t id = 21; id <= 60; ++id) queue.Push(Make(id, "busy", 0, 50));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(PopHead(queue)->request.key_id, "busy");
  queue.SetMaxLen(100);
  std::map<std::string, int> served;
  for (int i = 0; i < 10; ++i) ++served[PopHead(queue)->request.key_id];
  EXPECT_NEAR(served["patient"], 5, 1);
}

TEST(WaitingQueueTest, OutputCountsAgainstItsKey) {
  AllRunQueue queue;
  queue.Push(Make(1, "a"));
  queue.Push(Make(2, "a"));
  queue.Push(Make(11, "b"));
  queue.Push(Make(12, "b"));
  const auto first = PopHead(queue);
  first->account->used += 100 * FairAccount::kOutputTokenCost;
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(11, 12, 2));
}

TEST(WaitingQueueTest, AKeyThatWasAwayHasNoCredit) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 20; ++id) queue.Push(Make(id, "busy"));
  for (int i = 0; i < 10; ++i) PopHead(queue);
  for (uint64_t id = 101; id <= 120; ++id) queue.Push(Make(id, "new"));
  std::map<bool, int> served;
  for (int i = 0; i < 10; ++i) ++served[PopHead(queue)->sequence_id > 100];
  EXPECT_NEAR(served[true], 5, 1);
}

TEST(WaitingQueueTest, TakesWhatMeetsTheCondition) {
  AllRunQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) queue.Push(Make(id, id % 2 == 0 ? "a" : "b"));
  queue.Push(Returned(Make(6)));
  const auto taken =
      queue.Take([](const Sequence& sequence) { return sequence.sequence_id % 2 == 0; });
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_THAT(PopAll(queue), testing::ElementsAre(1, 3));
}

}  // namespace
}  // namespace weightless::router
