#include "common/bounded_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightless {
namespace {

TEST(BoundedQueueTest, WhatIsRemovedLeavesRoomAndTheRestKeepsItsOrder) {
  BoundedQueue<int> queue(5);
  for (int i = 1; i <= 5; ++i) EXPECT_TRUE(queue.Push(int{i}));
  EXPECT_FALSE(queue.Push(6));
  queue.RemoveIf([](int item) { return item % 2 == 0; });
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_TRUE(queue.Push(6));
  EXPECT_TRUE(queue.Push(7));
  EXPECT_FALSE(queue.Push(8));
  EXPECT_THAT(queue.PopAll(absl::InfinitePast()), testing::ElementsAre(1, 3, 5, 6, 7));
}

TEST(BoundedQueueTest, AClosedQueueGivesWhatItHolds) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.Push(1));
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_EQ(queue.Pop(absl::InfiniteFuture()), 1);
  EXPECT_EQ(queue.Pop(absl::InfiniteFuture()), std::nullopt);
}

}  // namespace
}  // namespace weightless
