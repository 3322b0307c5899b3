// Cut networks: at most one side goes on, and after they are healed everybody knows where it stands.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "sim/simulation.h"

#include "horo/base/config.h"
#include "horo/base/text.h"

namespace horo::sim {
namespace {

uint64_t number_of(const char* variable, uint64_t otherwise) {
  auto chosen = Environment::of_process().find(variable);
  return chosen ? std::strtoull(chosen->c_str(), nullptr, 10) : otherwise;
}

World::Options options_for(uint64_t seed, Bug bug = Bug::kNone) {
  return {.seed = seed, .ranks = static_cast<int>(2 + seed % 7), .bug = bug, .partitions = true};
}

std::string replay(uint64_t seed) {
  return text("horo-sim --partitions --verbose --ranks ", 2 + seed % 7, " --seeds ", seed, "..", seed);
}

TEST(SimulatedPartition, AtMostOneSideGoesOnAndEverybodyReachesADecision) {
  const uint64_t first = number_of("TEST_SEED", 1);
  const uint64_t count = number_of("TEST_PARTITIONS", number_of("LONG_TESTS", 0) > 0 ? 100'000 : 2'000);
  World::Counts total;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = simulate(options_for(seed));
    ASSERT_FALSE(outcome.violation) << replay(seed) << " (" << outcome.scenario << "): " << *outcome.violation;
    total += outcome.counts;
  }
  std::printf(
      "  %llu partitions, 0 double commits: %llu smaller worlds, %llu ranks without a quorum, %llu fenced, "
      "%llu worlds beside one that had ended\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(total.worlds),
      static_cast<unsigned long long>(total.stopped), static_cast<unsigned long long>(total.fenced),
      static_cast<unsigned long long>(total.overlooked));
  // A simulator that never came to these states would have proved nothing about them.
  if (count < 1000) return;
  EXPECT_GT(total.blocked, 10 * count);
  EXPECT_GT(total.worlds, count / 3);
  EXPECT_GT(total.stopped, count / 3);
  EXPECT_GT(total.fenced, count / 3);
  EXPECT_GT(total.gone_on, count / 2);
}

TEST(SimulatedPartition, TheOthersGoOnWhenOneRankIsCutOffAndComesBackAtAnyInstant) {
  const uint64_t first = number_of("TEST_SEED", 1);
  const uint64_t count = number_of("TEST_PARTITIONS", number_of("LONG_TESTS", 0) > 0 ? 20'000 : 500);
  World::Counts total;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    World::Options options = options_for(seed);
    options.isolation = true;
    const Outcome outcome = simulate(options);
    ASSERT_FALSE(outcome.violation) << replay(seed) << " --isolation (" << outcome.scenario
                                    << "): " << *outcome.violation;
    total += outcome.counts;
  }
  if (count < 500) return;
  EXPECT_GT(total.worlds, count / 3);
  EXPECT_GT(total.fenced + total.stopped, count / 3);
}

TEST(SimulatedPartition, ASeedReplaysToTheSameTraceEveryTime) {
  for (const bool partitions : {false, true}) {
    World::Options options = options_for(number_of("TEST_SEED", 11));
    options.partitions = partitions;
    const Outcome once = simulate(options);
    for (int turn = 1; turn < 100; ++turn) {
      const Outcome again = simulate(options);
      ASSERT_EQ(once.trace_hash, again.trace_hash) << replay(options.seed);
      ASSERT_EQ(once.counts.events, again.counts.events) << replay(options.seed);
    }
  }
}

}  // namespace
}  // namespace horo::sim
