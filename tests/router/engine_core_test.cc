#include "router/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/router/cluster.h"

namespace weightless::router {
namespace {

using testing::Client;
using testing::Cluster;
using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::MakeRequest;

TEST(EngineCoreTest, GeneratesUpToMaxTokens) {
  Cluster cluster({});
  Client* client = cluster.Submit(MakeRequest(20, 30));
  cluster.RunUntilIdle();
  EXPECT_EQ(client->output, cluster.Expected(*client));
  EXPECT_EQ(client->output.size(), 30u);
  EXPECT_EQ(client->end, EndReason::kLength);
  EXPECT_TRUE(cluster.core().idle());
  cluster.core().CheckInvariants();
}

TEST(EngineCoreTest, OneTokenIsOneStep) {
  Cluster cluster({});
  Client* client = cluster.Submit(MakeRequest(1, 1));
  EXPECT_TRUE(cluster.Deliver(0));
  EXPECT_FALSE(cluster.Deliver(0));
  client->Read();
  EXPECT_EQ(client->output, cluster.Expected(*client));
  EXPECT_EQ(client->end, EndReason::kLength);
}

TEST(EngineCoreTest, EndsWithTheStopToken) {
  Cluster cluster({.model = {.stop_one_in = 8}});
  Client* client = cluster.Submit(MakeRequest(20, 150));
  cluster.RunUntilIdle();
  EXPECT_EQ(client->output, cluster.Expected(*client));
  EXPECT_EQ(client->output.back(), 5);
  EXPECT_EQ(client->end, EndReason::kStop);
}

}  // namespace
}  // namespace weightless::router
