#include "router/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/router/cluster.h"

namespace weightless::router {
namespace {

using testing::Client;
using testing::Cluster;
using testing::ClusterOptions;
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

TEST(EngineCoreTest, KeepsPlansAhead) {
  Cluster cluster({.config = {.plan_ahead = 3}});
  cluster.Submit(MakeRequest(10, 50));
  EXPECT_EQ(cluster.worker(0).plans().size(), 3u);
  cluster.Deliver(0);
  EXPECT_EQ(cluster.worker(0).plans().size(), 3u);
}

TEST(EngineCoreTest, TellsWhatTheCacheGave) {
  Cluster cluster({});
  cluster.Submit(MakeRequest(40, 2));
  cluster.RunUntilIdle();
  Client* again = cluster.Submit(MakeRequest(40, 2));
  cluster.RunUntilIdle();
  EXPECT_EQ(again->num_cached_tokens, 36);
  EXPECT_EQ(again->output, cluster.Expected(*again));
  EXPECT_EQ(cluster.metrics().cached_tokens.value(), 36);
  EXPECT_EQ(cluster.metrics().prompt_tokens.value(), 80);
}

TEST(EngineCoreTest, GoesWhereThePrefixIs) {
  Cluster cluster({.num_workers = 3});
  std::vector<Client*> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(cluster.Submit(MakeRequest(40, 2, i + 1)));
  cluster.RunUntilIdle();  // one on each worker: the least loaded one is next
  for (int i = 0; i < 3; ++i) {
    Client* again = cluster.Submit(MakeRequest(40, 2, i + 1));
    cluster.RunUntilIdle();
    EXPECT_EQ(again->num_cached_tokens, 36);
  }
}

TEST(EngineCoreTest, WithoutAPrefixGoesToTheLeastLoaded) {
  Cluster cluster({.num_workers = 2});
  cluster.Submit(MakeRequest(10, 100, 1));
  cluster.Submit(MakeRequest(10, 20, 2));
  cluster.Submit(MakeRequest(10, 20, 3));
  const Loads loads = cluster.core().ComputeLoads();
  EXPECT_EQ(loads.replicas[0].num_running, 1);
  EXPECT_EQ(loads.replicas[1].num_running, 2);
}

TEST(EngineCoreTest, QueuesWhatFindsNoSlot) {
  Cluster cluster({});
  for (int i = 0; i < 11; ++i) cluster.Submit(MakeRequest(4, 10, i + 1));
  EXPECT_EQ(cluster.core().ComputeLoads().num_queued, 3);
  EXPECT_EQ(cluster.admission().num_queued(), 3);
  cluster.RunUntilIdle();
  for (const auto& client : cluster.clients()) {
    EXPECT_EQ(client->output, cluster.Expected(*client));
  }
}

TEST(EngineCoreTest, BoundsTheQueue) {
  Cluster cluster({.config = {.max_queued = 2}});
  for (int i = 0; i < 10; ++i) cluster.Submit(MakeRequest(4, 10, i + 1));
  const absl::Status status = cluster.admission().Check("", 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "the queue holds 2 of 2 sequences; no room for 1 more");
}

TEST(EngineCoreTest, AKeyThatFloodsDoesNotHoldBackAnother) {
  Cluster cluster({});
  for (int i = 0; i < 50; ++i) {
    SequenceRequest request = MakeRequest(8, 20, i + 1);
    request.key_id = "flood";
    cluster.Submit(std::move(request));
  }
  SequenceRequest request = MakeRequest(8, 20, 99);
  request.key_id = "quiet";
  Client* quiet = cluster.Submit(std::move(request));
  int num_ended = 0;
  while (!quiet->end.has_value()) {
    cluster.Deliver(0);
    quiet->Read();
  }
  for (const auto& client : cluster.clients()) {
    client->Read();
    if (client->end.has_value()) ++num_ended;
  }
  EXPECT_LE(num_ended, 17);  // the eight that ran already, and their successors
}

TEST(EngineCoreTest, AKeyThatHoldsAllSlotsYieldsOneAtOnce) {
  Cluster cluster({.config = {.plan_ahead = 2}});
  for (int i = 0; i < 20; ++i) {
    SequenceRequest request = MakeRequest(8, 100, i + 1);
    request.key_id = "flood";
    cluster.Submit(std::move(request));
  }
  for (int i = 0; i < 10; ++i) cluster.Deliver(0);
  SequenceRequest request = MakeRequest(8, 20, 99);
  request.key_id = "quiet";
  Client* quiet = cluster.Submit(std::move(request));
  for (int i = 0; i < 3; ++i) cluster.Deliver(0);  // the two plans ahead, and its own
  quiet->Read();
  EXPECT_EQ(quiet->output.size(), 1u);
  EXPECT_EQ(cluster.metrics().preemptions.value(), 1);
  cluster.RunUntilIdle();
  for (const auto& client : cluster.clients()) {
    EXPECT_EQ(client->output, cluster.Expected(*client));
  }
  cluster.core().CheckInvariants();
}

TEST(EngineCoreTest, AKeyLeavesAsManyPlacesInTheQueueAsItTakes) {
  Admission admission(12);
  admission.SetReady(1, 100);
  const auto take_all = [&](const std::string& key) {
    int num_taken = 0;
    while (admission.Enter(key, 1).ok()) ++num_taken;
    return num_taken;
  };
  EXPECT_EQ(take_all("a"), 6);
  EXPECT_EQ(take_all("b"), 3);
  EXPECT_EQ(take_all("c"), 1);
  EXPECT_EQ(take_all("d"), 1);
  EXPECT_EQ(admission.Enter("a", 1).message(),
            "the key \"a\" has 6 sequences in the queue; with 1 more it would leave fewer places, "
            "0, than it takes");
  admission.Leave("a", 6);
  EXPECT_EQ(take_all("d"), 3);
  EXPECT_EQ(take_all(""), 4);  // who has no key has no part of its own
}

TEST(EngineCoreTest, LeavingClientFreesItsBlocksAtOnce) {
  Cluster cluster({});
  Client* client = cluster.Submit(MakeRequest(40, 100));
  cluster.Deliver(0);
  cluster.Close(*client);
  EXPECT_EQ(cluster.core().ComputeLoads().replicas[0].full_blocks_used, 0);
  EXPECT_TRUE(cluster.core().idle());
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.Metrics(0).rejected_plans.value(), 0);
}

TEST(EngineCoreTest, LostWorkersSequencesGoOnElsewhere) {
  Cluster cluster({.num_workers = 2});
  for (int i = 0; i < 8; ++i) {
    SequenceRequest request = MakeRequest(10, 40, i + 1);
    request.sampling.set_logprobs(1);
    cluster.Submit(std::move(request));
  }
  for (int i = 0; i < 10; ++i) cluster.Deliver(i % 2);
  cluster.worker(0).Kill();
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.metrics().migrations.value(), 4);
  for (const auto& client : cluster.clients()) {
    EXPECT_EQ(client->output, cluster.Expected(*client));
    EXPECT_EQ(client->logprobs.size(), client->output.size());
  }
}

TEST(EngineCoreTest, WithoutWorkersIsUnavailableUntilOneIsBack) {
  Cluster cluster({});
  Client* client = cluster.Submit(MakeRequest(10, 40));
  cluster.Deliver(0);
  cluster.worker(0).Kill();
  cluster.Deliver(0);
  EXPECT_TRUE(absl::IsUnavailable(cluster.admission().Check("", 1)));
  cluster.Advance(absl::Milliseconds(100));
  cluster.RunUntilIdle();  // still dead
  cluster.worker(0).Revive();
  cluster.Advance(absl::Milliseconds(200));
  cluster.RunUntilIdle();
  EXPECT_TRUE(cluster.admission().Check("", 1).ok());
  EXPECT_EQ(client->output, cluster.Expected(*client));
}

TEST(EngineCoreTest, HangingWorkerIsLostAfterTheStepTimeout) {
  Cluster cluster({.num_workers = 2, .config = {.step_timeout = absl::Seconds(5)}});
  Client* client = cluster.Submit(MakeRequest(10, 40));
  cluster.worker(0).SetHanging(true);
  cluster.RunUntilIdle();
  cluster.Advance(absl::Seconds(4.9));
  EXPECT_EQ(cluster.Metrics(0).losses.value(), 0);
  cluster.Advance(absl::Seconds(0.2));
  EXPECT_EQ(cluster.Metrics(0).losses.value(), 1);
  cluster.RunUntilIdle();
  EXPECT_EQ(client->output, cluster.Expected(*client));
}

TEST(EngineCoreTest, FaultyResultIsTreatedAsALoss) {
  Cluster cluster({.num_workers = 2});
  Client* client = cluster.Submit(MakeRequest(10, 40));
  cluster.worker(0).SetMangler(
      [](proto::StepResult& result) { result.mutable_slots(0)->set_token(-5); });
  cluster.RunUntilIdle();
  EXPECT_EQ(cluster.Metrics(0).losses.value(), 1);
  EXPECT_EQ(client->output, cluster.Expected(*client));
}

TEST(EngineCoreTest, SequenceThatKillsWorkersEndsAlone) {
  Cluster cluster({.num_workers = 1});
  Client* poison = cluster.Submit(MakeRequest(10, 40, 1));
  Client* innocent = cluster.Submit(MakeRequest(10, 40, 2));
  // Whatever runs the poison's slot dies before it answers.
  for (int round = 0; round < 100 && !poison->end.has_value(); ++round) {
    const auto& plans = cluster.worker(0).plans();
    const bool runs_poison =
        !plans.empty() &&
        std::any_of(plans.front().admit().begin(), plans.front().admit().end(),
                    [](const proto::Admit& admit) { return admit.sampling().seed() == 1; });
    if (runs_poison) {
      cluster.worker(0).Kill();
      cluster.worker(0).Revive();
    }
    cluster.Deliver(0);
    cluster.Advance(absl::Milliseconds(500));
    poison->Read();
  }
  cluster.RunUntilIdle();
  EXPECT_EQ(poison->end, EndReason::kError);
  EXPECT_TRUE(absl::IsInternal(poison->status));
  EXPECT_EQ(innocent->output, cluster.Expected(*innocent));
  EXPECT_EQ(cluster.metrics().poisoned_sequences.value(), 1);
}

TEST(EngineCoreTest, OtherWeightsAreRefused) {
  Cluster cluster({.num_workers = 2});
  cluster.worker(1).Kill();
  cluster.Deliver(1);
  cluster.worker(1).Revive();
  cluster.worker(1).description().mutable_model()->set_weight_identity("other");
  cluster.Advance(absl::Milliseconds(100));
  cluster.Deliver(1);
  EXPECT_EQ(cluster.Metrics(1).refusals.value(), 1);
  EXPECT_EQ(cluster.Metrics(1).up.value(), 0);
  EXPECT_FALSE(cluster.worker(1).connected());
  EXPECT_TRUE(cluster.admission().Check("", 1).ok());
}

TEST(EngineCoreTest, OtherProtocolVersionIsRefused) {
  proto::Description description = testing::FakeDescription({}, testing::TinyGeometry());
  EXPECT_TRUE(CheckDescription(description).ok());
  description.set_protocol_version(2);
  EXPECT_EQ(CheckDescription(description).message(), "protocol_version 2 is not in 1 .. 1");
}

TEST(EngineCoreTest, ImpossibleGeometryIsRefused) {
  proto::Description description = testing::FakeDescription({}, testing::TinyGeometry());
  description.mutable_geometry()->set_sliding_window(0);
  EXPECT_EQ(CheckDescription(description).message(), "sliding_window 0 is not in 1 .. 16777216");
  description.mutable_geometry()->set_sliding_window(10);
  description.mutable_geometry()->set_num_full_blocks(4'000'000'000);
  EXPECT_EQ(CheckDescription(description).message(),
            "num_full_blocks 4000000000 is not in 1 .. 16777216");
}

TEST(EngineCoreTest, DeadlineEndsRunningAndWaitingSequences) {
  Cluster cluster({});
  for (int i = 0; i < 9; ++i) {
    SequenceRequest request = MakeRequest(10, 100, i + 1);
    request.deadline = absl::UnixEpoch() + absl::Seconds(10);
    cluster.Submit(std::move(request));
  }
  cluster.Deliver(0);
  EXPECT_EQ(cluster.core().NextPump(), absl::UnixEpoch() + absl::Seconds(10));
  cluster.Advance(absl::Seconds(10));
  for (const auto& client : cluster.clients()) {
    client->Read();
    EXPECT_EQ(client->end, EndReason::kError);
    EXPECT_TRUE(absl::IsDeadlineExceeded(client->status));
  }
  EXPECT_EQ(cluster.clients()[0]->status.message(), "not finished within 10s");
  EXPECT_TRUE(cluster.core().idle());
  EXPECT_EQ(cluster.admission().num_queued(), 0);
}

TEST(EngineCoreTest, SequencesWaitForALostWorkerSoLong) {
  Cluster cluster({.config = {.worker_wait_timeout = absl::Seconds(60)}});
  Client* running = cluster.Submit(MakeRequest(10, 100));
  cluster.Deliver(0);
  cluster.worker(0).Kill();
  cluster.Deliver(0);
  for (int i = 0; i < 59; ++i) cluster.Advance(absl::Seconds(1));
  running->Read();
  EXPECT_FALSE(running->end.has_value());
  cluster.Advance(absl::Seconds(1));
  running->Read();
  EXPECT_EQ(running->end, EndReason::kError);
  EXPECT_TRUE(absl::IsUnavailable(running->status));
  EXPECT_EQ(running->status.message(), "no worker has been ready for 1m");
  EXPECT_TRUE(cluster.core().idle());
}

TEST(EngineCoreTest, WhatOnlyAnAbsentWorkerHoldsKeepsNobodyWaiting) {
  proto::Geometry small = testing::TinyGeometry();
  small.set_num_full_blocks(8);
  Cluster cluster({.num_workers = 2, .other_geometries = {{1, small}}});
  const int64_t limit = cluster.admission().length_limit().num_tokens;
  ASSERT_GT(limit, LimitOf(small).num_tokens);
  Client* large = cluster.Submit(MakeRequest(10, static_cast<int>(limit) - 10));
  cluster.Deliver(0);
  cluster.worker(0).Kill();
  cluster.Deliver(0);
  Client* short_one = cluster.Submit(MakeRequest(4, 4));
  cluster.RunUntilIdle();
  EXPECT_EQ(short_one->output, cluster.Expected(*short_one));
  EXPECT_FALSE(large->end.has_value());
  EXPECT_EQ(cluster.admission().length_limit().num_tokens, limit);  // it may come back
  EXPECT_EQ(cluster.admission().length_limit().num_ready_tokens, LimitOf(small).num_tokens);
  cluster.worker(0).Revive();
  cluster.Advance(absl::Seconds(2));
  cluster.RunUntilIdle();
  EXPECT_EQ(large->output, cluster.Expected(*large));
}

TEST(EngineCoreTest, ADiscoveredWorkerThatLeavesWhileItConnectsIsForgotten) {
  proto::Geometry small = testing::TinyGeometry();
  small.set_num_full_blocks(8);
  Cluster cluster({.geometry = small});
  const int64_t limit = LimitOf(small).num_tokens;
  const auto known = [&] { return cluster.admission().length_limit().num_tokens; };
  cluster.Discover("large", testing::TinyGeometry());
  cluster.Deliver(1);
  ASSERT_GT(known(), limit);
  cluster.worker(1).Kill();
  cluster.Deliver(1);
  cluster.worker(1).Revive();
  cluster.Advance(absl::Seconds(1));  // it connects again, and nobody answers
  cluster.core().SetListed({});
  EXPECT_GT(known(), limit);
  cluster.Advance(absl::Minutes(2));
  EXPECT_EQ(known(), limit);
}

TEST(EngineCoreTest, AWorkerThatIsBackInTimeGoesOn) {
  Cluster cluster({.config = {.worker_wait_timeout = absl::Seconds(60)}});
  Client* running = cluster.Submit(MakeRequest(10, 100));
  cluster.Deliver(0);
  for (int i = 0; i < 2; ++i) {
    cluster.worker(0).Kill();
    cluster.Deliver(0);
    cluster.worker(0).Revive();
    cluster.Advance(absl::Seconds(59));
    cluster.Deliver(0);  // ready
    cluster.Deliver(0);  // a token
  }
  cluster.RunUntilIdle();
  EXPECT_EQ(running->output, cluster.Expected(*running));
}

TEST(WorkerPoolTest, WarnsOfAWorkerThatDoesNotStart) {
  RouterMetrics metrics;
  std::vector<WorkerEndpoint> endpoints;
  endpoints.push_back({.address = "w0",
                       .client = std::make_unique<testing::FakeWorkerClient>(
                           testing::FakeModel{}, testing::TinyGeometry())});
  WorkerPool pool(std::move(endpoints), {nullptr}, metrics);
  Replica& replica = pool.replicas()[0];
  absl::Time now = absl::UnixEpoch();
  const auto fail = [&](absl::Duration later, const char* why) {
    now += later;
    pool.Tick(now, false);
    ::testing::internal::CaptureStderr();
    pool.MarkDown(replica, absl::UnavailableError(why), now);
    const std::string line = ::testing::internal::GetCapturedStderr();
    return line.find("INFO") < line.size() ? 'i' : line.find("WARNING") < line.size() ? 'w' : '-';
  };
  EXPECT_EQ(fail(absl::ZeroDuration(), "refused"), 'i');
  EXPECT_EQ(fail(absl::Seconds(1), "refused"), '-');
  EXPECT_EQ(fail(absl::Seconds(1), "other"), 'i');
  EXPECT_EQ(fail(absl::Seconds(28), "other"), 'w');
  EXPECT_EQ(fail(absl::Seconds(2), "other"), '-');
  pool.MarkReady(replica, {.geometry = testing::TinyGeometry(), .vocab_size = 1000});
  EXPECT_EQ(fail(absl::Seconds(1), "gone"), 'w');  // lost
  EXPECT_EQ(fail(absl::Seconds(1), "gone"), '-');
  EXPECT_EQ(fail(absl::Seconds(1), "refused"), 'w');
}

TEST(EngineCoreTest, OnePlanAheadStallsEveryStepAndTwoDoNot) {
  for (const int plan_ahead : {1, 2}) {
    Cluster cluster({.config = {.plan_ahead = plan_ahead}});
    cluster.Submit(MakeRequest(10, 50));
    for (int i = 0; i < 50; ++i) {
      cluster.Advance(absl::Milliseconds(1));
      cluster.Deliver(0);
    }
    EXPECT_EQ(cluster.Metrics(0).plan_ahead_stalls.value(), plan_ahead == 1 ? 49 : 0);
  }
}

TEST(EngineCoreTest, RefusesWhatNoWorkerHoldsNamingTheNumbers) {
  Admission admission(10);
  proto::Geometry geometry = testing::TinyGeometry();
  geometry.set_num_full_blocks(20);
  admission.SetLengthLimit(LimitOf(geometry));
  EXPECT_TRUE(admission.CheckFits(MakeRequest(50, 31)).ok());
  const absl::Status status = admission.CheckFits(MakeRequest(50, 32));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "a prompt of 50 tokens and 32 output tokens make 82, more than the 81 that any worker "
            "holds");
  EXPECT_EQ(admission.length_limit().num_tokens, 81);
  EXPECT_EQ(admission.length_limit().cause, LengthLimit::Cause::kKvBlocks);
  geometry.set_num_full_blocks(30);
  admission.SetLengthLimit(LimitOf(geometry));
  EXPECT_TRUE(admission.CheckFits(MakeRequest(50, 32)).ok());
  admission.SetLengthLimit({});  // nobody is known any more
  EXPECT_TRUE(admission.CheckFits(MakeRequest(50, 32)).ok());
}

}  // namespace
}  // namespace weightless::router
