#include "sim/partition.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "horo/base/config.h"

namespace horo::sim {
namespace {

uint64_t number_of(const char* variable, uint64_t otherwise) {
  auto chosen = Environment::of_process().find(variable);
  return chosen ? std::strtoull(chosen->c_str(), nullptr, 10) : otherwise;
}

TEST(Partition, OfACutNetworkAtMostOneSideGoesOn) {
  const uint64_t first = number_of("TEST_SEED", 1);
  const uint64_t count = number_of("TEST_PARTITIONS", number_of("LONG_TESTS", 0) > 0 ? 100'000 : 5'000);
  PartitionOutcome total;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const PartitionOutcome outcome = simulate_partition({.seed = seed});
    ASSERT_FALSE(outcome.violation) << "TEST_SEED=" << seed << " TEST_PARTITIONS=1 (" << outcome.scenario
                                    << "): " << *outcome.violation;
    total.cuts += outcome.cuts;
    total.kills += outcome.kills;
    total.refused += outcome.refused;
    total.worlds += outcome.worlds;
    total.fenced += outcome.fenced;
  }
  // A simulator that never came to these states would have proved nothing about them.
  EXPECT_GT(total.cuts, count);
  EXPECT_GT(total.kills, count / 4);
  EXPECT_GT(total.refused, count / 2);
  EXPECT_GT(total.worlds, count / 2);
  EXPECT_GT(total.fenced, count / 4);
}

TEST(Partition, WithoutAQuorumBothSidesGoOnAndThatIsFound) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    found += simulate_partition({.seed = seed, .ignores_quorum = true}).violation ? 1 : 0;
  }
  EXPECT_GT(found, 30u);
}

TEST(Partition, ASeedReplaysExactly) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ASSERT_EQ(simulate_partition({.seed = seed}).trace_hash, simulate_partition({.seed = seed}).trace_hash);
  }
}

}  // namespace
}  // namespace horo::sim
