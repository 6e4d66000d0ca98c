// The engine core under random load, preemption, cancellation and worker loss. The fake workers
// check every plan; what is checked here is that every client gets exactly what it would have got
// alone, and that nothing is left behind.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/router/cluster.h"

namespace weightless::router {
namespace {

using testing::Client;
using testing::Cluster;
using testing::ClusterOptions;
using testing::MakeRequest;

using Random = std::minstd_rand;

int Between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}
bool OneIn(Random& random, int n) { return random() % static_cast<unsigned>(n) == 0; }

struct Load {
  int num_clients = 100;
  int max_prompt = 60;
  int max_tokens = 60;
  int max_alive = 12;
  int close_one_in = 0;  // deliveries between two clients that leave; 0: none leaves
  int kill_one_in = 0;   // deliveries between two worker losses; 0: none
  int num_keys = 4;
  int share_one_in = 2;  // prompts that begin like another
  bool prompt_logprobs = false;
  std::optional<bool> preempts = true;  // unset: it may
};

SequenceRequest RandomRequest(Random& random, const Load& load, int number) {
  SequenceRequest request = MakeRequest(Between(random, 1, load.max_prompt),
                                        Between(random, 1, load.max_tokens), number + 1);
  if (OneIn(random, load.share_one_in)) {
    const SequenceRequest common = MakeRequest(load.max_prompt, 1, Between(random, 1000, 1003));
    const int num_shared = Between(random, 0, static_cast<int>(request.prompt.size()));
    std::copy_n(common.prompt.begin(), num_shared, request.prompt.begin());
  }
  request.priority = Between(random, 0, 2);
  request.key_id = "key" + std::to_string(Between(random, 0, load.num_keys - 1));
  if (OneIn(random, 5)) request.cache_salt = "salt";
  if (OneIn(random, 3)) request.sampling.set_logprobs(2);
  if (load.prompt_logprobs && OneIn(random, 3)) request.prompt_logprobs = 1;
  return request;
}

// Who left, or lost worker after worker, has the beginning of what it should have.
void CheckOutput(const Cluster& cluster, const Client& client, bool was_closed) {
  std::vector<int32_t> expected = cluster.Expected(client);
  ASSERT_TRUE(was_closed || client.end.has_value());
  if (was_closed || client.end == EndReason::kError) {
    ASSERT_LE(client.output.size(), expected.size());
    expected.resize(client.output.size());
  }
  ASSERT_EQ(client.output, expected);

  std::vector<int32_t> tokens = client.request.prompt;
  if (client.request.prompt_logprobs.has_value() && !client.output.empty()) {
    ASSERT_EQ(client.prompt_logprobs.size(), tokens.size() - 1);
    for (size_t i = 1; i < tokens.size(); ++i) {
      ASSERT_EQ(client.prompt_logprobs[i - 1].token(), tokens[i]);
    }
  }
  if (!client.request.sampling.has_logprobs()) return;
  ASSERT_EQ(client.logprobs.size(), client.output.size());
  for (size_t i = 0; i < client.output.size(); ++i) {
    ASSERT_EQ(client.logprobs[i].SerializeAsString(),
              testing::FakeLogprobs(tokens, client.output[i], 2).SerializeAsString());
    tokens.push_back(client.output[i]);
  }
}

// Every worker must be whole again once all is over.
void CheckNothingIsLeft(Cluster& cluster) {
  EXPECT_TRUE(cluster.core().idle());
  EXPECT_EQ(cluster.admission().num_queued(), 0);
  for (const ReplicaLoad& load : cluster.core().ComputeLoads().replicas) {
    EXPECT_EQ(load.full_blocks_used, 0);
    EXPECT_EQ(load.sliding_blocks_used, 0);
    EXPECT_EQ(load.num_running, 0);
  }
}

void Simulate(const ClusterOptions& options, const Load& load, unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed + 1);
  Cluster cluster(options);
  std::vector<Client*> alive, closed;
  int num_submitted = 0;
  while (num_submitted < load.num_clients || !alive.empty()) {
    if (num_submitted < load.num_clients && OneIn(random, 3) &&
        static_cast<int>(alive.size()) < load.max_alive) {
      SequenceRequest request = RandomRequest(random, load, num_submitted);
      if (cluster.admission().Check(request.key_id, 1).ok()) {
        ++num_submitted;
        alive.push_back(cluster.Submit(std::move(request)));
      }
    }
    const int worker = Between(random, 0, cluster.num_workers() - 1);
    if (load.kill_one_in > 0 && OneIn(random, load.kill_one_in)) cluster.worker(worker).Kill();
    cluster.Deliver(worker);
    if (OneIn(random, 4)) {
      cluster.worker(worker).Revive();
      cluster.Advance(absl::Milliseconds(100));
    }
    if (load.close_one_in > 0 && !alive.empty() && OneIn(random, load.close_one_in)) {
      Client*& leaving = alive[random() % alive.size()];
      leaving->Read();
      cluster.Close(*leaving);
      closed.push_back(leaving);
      std::swap(leaving, alive.back());
      alive.pop_back();
    }
    for (Client* client : alive) client->Read();
    std::erase_if(alive, [](Client* client) { return client->end.has_value(); });
    cluster.core().CheckInvariants();
  }
  cluster.RunUntilIdle();
  int num_errors = 0;
  for (const auto& client : cluster.clients()) {
    const bool was_closed = std::find(closed.begin(), closed.end(), client.get()) != closed.end();
    ASSERT_NO_FATAL_FAILURE(CheckOutput(cluster, *client, was_closed));
    if (client->end == EndReason::kError) ++num_errors;
  }
  EXPECT_EQ(num_errors, cluster.metrics().poisoned_sequences.value());
  for (int i = 0; i < cluster.num_workers(); ++i) {
    EXPECT_EQ(cluster.Metrics(i).rejected_plans.value(), 0);
  }
  CheckNothingIsLeft(cluster);
  const bool preempted = cluster.metrics().preemptions.value() > 0;
  EXPECT_EQ(preempted, load.preempts.value_or(preempted));
}

TEST(SimulationTest, RoomForAll) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    ClusterOptions options{.model = {.stop_one_in = 50}};
    options.geometry.set_num_full_blocks(400);
    options.geometry.set_num_sliding_blocks(400);
    Simulate(options, {.num_keys = 1, .prompt_logprobs = true, .preempts = false}, seed);
  }
}

TEST(SimulationTest, TinyPoolsPreempt) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    ClusterOptions options{.model = {.stop_one_in = 50}};
    options.geometry.set_num_full_blocks(32);
    options.geometry.set_num_sliding_blocks(9);
    options.config.plan_ahead = 1 + static_cast<int>(seed % 4);
    Simulate(options, {.prompt_logprobs = true}, seed);
  }
}

TEST(SimulationTest, OneSequenceFillsThePool) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    ClusterOptions options;
    options.geometry.set_num_full_blocks(30);
    options.geometry.set_num_sliding_blocks(4);
    options.config.max_chunk_tokens = 5;
    Simulate(options, {.num_clients = 40, .preempts = std::nullopt}, seed);
  }
}

TEST(SimulationTest, NoSlidingLayers) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    ClusterOptions options{.num_workers = 2};
    options.geometry.set_num_full_blocks(40);
    options.geometry.set_num_sliding_blocks(0);
    options.geometry.set_sliding_window(0);
    Simulate(options, {}, seed);
  }
}

TEST(SimulationTest, ClientsLeave) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    ClusterOptions options{.num_workers = 2, .model = {.stop_one_in = 50}};
    options.geometry.set_num_full_blocks(40);
    options.geometry.set_num_sliding_blocks(16);
    Simulate(options, {.close_one_in = 8}, seed);
  }
}

TEST(SimulationTest, WorkersDie) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    ClusterOptions options{.num_workers = 3, .model = {.stop_one_in = 80}};
    options.geometry.set_num_full_blocks(40);
    options.geometry.set_num_sliding_blocks(16);
    options.config.plan_ahead = 1 + static_cast<int>(seed % 3);
    Simulate(options, {.close_one_in = 40, .kill_one_in = 60, .prompt_logprobs = true}, seed);
  }
}

}  // namespace
}  // namespace weightless::router
