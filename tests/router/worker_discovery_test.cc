#include "router/worker_discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "common/bounded_queue.h"

namespace weightless::router {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Addresses = std::vector<std::string>;
using Answer = absl::StatusOr<Addresses>;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Gives one answer after another, the last one for ever, and collects what is reported.
class Script {
 public:
  explicit Script(std::deque<Answer> answers)
      : answers_(std::move(answers)),
        discovery_(
            {{.host = "workers", .port = 9000}},
            [this](const std::vector<FoundWorker>& found) {
              Addresses addresses;
              for (const FoundWorker& worker : found) {
                EXPECT_EQ(worker.name, "workers");
                addresses.push_back(worker.address);
              }
              EXPECT_TRUE(reports_.Push(std::move(addresses)));
            },
            [this](const DnsName& name) {
              EXPECT_EQ(name.host, "workers");
              Answer answer = answers_.front();
              if (answers_.size() > 1) answers_.pop_front();
              return answer;
            },
            absl::Milliseconds(1)) {}

  std::optional<Addresses> NextReport() { return reports_.Pop(absl::Now() + kPatience); }

 private:
  BoundedQueue<Addresses> reports_{100};
  std::deque<Answer> answers_;  // of the discovery's thread
  WorkerDiscovery discovery_;   // last: its thread uses the others
};

TEST(WorkerDiscoveryTest, ReportsAddressesSortedAndOnce) {
  Script script({Addresses{"b:1", "a:1", "b:1"}});
  EXPECT_THAT(*script.NextReport(), ElementsAre("a:1", "b:1"));
}

TEST(WorkerDiscoveryTest, ReportsOnlyChanges) {
  Script script({Addresses{"a:1", "b:1"}, Addresses{"b:1", "a:1"}, Addresses{"b:1"}});
  EXPECT_THAT(*script.NextReport(), ElementsAre("a:1", "b:1"));
  EXPECT_THAT(*script.NextReport(), ElementsAre("b:1"));
}

TEST(WorkerDiscoveryTest, KeepsWhatItKnewWhenNobodyCanTell) {
  Script script({Addresses{"a:1"}, absl::UnavailableError("no name server"), Addresses{}});
  EXPECT_THAT(*script.NextReport(), ElementsAre("a:1"));
  EXPECT_THAT(*script.NextReport(), IsEmpty());
}

TEST(WorkerDiscoveryTest, AnAddressOfTwoNamesGoesUnderTheFirst) {
  BoundedQueue<std::vector<FoundWorker>> reports(10);
  const WorkerDiscovery discovery(
      {{.host = "z", .port = 1}, {.host = "y", .port = 1}},
      [&](const std::vector<FoundWorker>& found) { EXPECT_TRUE(reports.Push(std::vector(found))); },
      [](const DnsName& name) {
        return Addresses{"a:1", name.host == "z" ? "b:1" : "c:1"};
      });
  EXPECT_THAT(
      *reports.Pop(absl::Now() + kPatience),
      ElementsAre(FoundWorker{"a:1", "z"}, FoundWorker{"b:1", "z"}, FoundWorker{"c:1", "y"}));
}

TEST(WorkerDiscoveryTest, ParsesNames) {
  const auto name = ParseDnsName("dns:worker.local:9000");
  ASSERT_TRUE(name.ok() && name->has_value());
  EXPECT_EQ((*name)->host, "worker.local");
  EXPECT_EQ((*name)->port, 9000);
  EXPECT_EQ(*ParseDnsName("worker:9000"), std::nullopt);
}

TEST(WorkerDiscoveryTest, RefusesWhatIsNoName) {
  for (const char* given : {"dns:", "dns:worker", "dns::9000", "dns:worker:0", "dns:worker:65536",
                            "dns:worker:9000x", "dns:worker:"}) {
    EXPECT_THAT(std::string(ParseDnsName(given).status().message()), HasSubstr("dns:HOST:PORT"))
        << given;
  }
}

TEST(WorkerDiscoveryTest, LooksUpThisMachine) {
  const Answer found = LookUp({.host = "127.0.0.1", .port = 9000});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre("127.0.0.1:9000"));
  EXPECT_THAT(*LookUp({.host = "::1", .port = 9000}), Each("[::1]:9000"));
}

}  // namespace
}  // namespace weightless::router
