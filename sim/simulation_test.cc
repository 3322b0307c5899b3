#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "horo/base/config.h"

namespace horo::sim {
namespace {

/// TEST_SEED moves the range of seeds; a failure names the seed that replays it.
uint64_t first_seed() {
  auto chosen = Environment::of_process().find("TEST_SEED");
  return chosen ? std::strtoull(chosen->c_str(), nullptr, 10) : 1;
}

World::Options options_for(uint64_t seed, Bug bug = Bug::kNone) {
  World::Options options;
  options.seed = seed;
  options.ranks = static_cast<int>(2 + seed % 7);
  options.bug = bug;
  options.partitions = bug >= kFirstPartitionBug;
  options.isolation = bug >= kFirstIsolationBug;
  return options;
}

TEST(Simulation, TwoThousandJobsThatLoseMembersEndEquallyOnAllSurvivors) {
  World::Counts total;
  for (uint64_t seed = first_seed(); seed < first_seed() + 2000; ++seed) {
    Outcome outcome = simulate(options_for(seed));
    ASSERT_FALSE(outcome.violation) << "seed " << seed << " (" << outcome.scenario << "): " << *outcome.violation;
    total += outcome.counts;
  }
  // A simulator that never came to these states would have proved nothing about them.
  EXPECT_GT(total.struck, 2000u);
  EXPECT_GT(total.rounds, 5000u);
  EXPECT_GT(total.served, 300u);
  EXPECT_GT(total.replaced, 100u);
  EXPECT_GT(total.fenced, 50u);
}

TEST(Simulation, ASeedReplaysExactly) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 100; ++seed) {
    Outcome once = simulate(options_for(seed));
    Outcome again = simulate(options_for(seed));
    ASSERT_EQ(once.trace_hash, again.trace_hash) << "seed " << seed;
    ASSERT_EQ(once.counts.events, again.counts.events) << "seed " << seed;
    ASSERT_NE(once.trace_hash, simulate(options_for(seed + 7)).trace_hash) << "seed " << seed;
  }
}

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsFoundWithinFourThousandSeeds) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 4000; ++seed) {
    Outcome outcome = simulate(options_for(seed, GetParam()));
    if (!outcome.violation) continue;
    RecordProperty("seeds", static_cast<int>(seed - first_seed() + 1));
    std::printf("%s: found by seed %llu: %s\n", name(GetParam()).data(), static_cast<unsigned long long>(seed),
                outcome.violation->c_str());
    return;
  }
  FAIL() << name(GetParam()) << " was not found";
}

std::vector<Bug> all_bugs() {
  std::vector<Bug> bugs;
  for (size_t i = 1; i < kBugNames.size(); ++i) bugs.push_back(static_cast<Bug>(i));
  return bugs;
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedBug, testing::ValuesIn(all_bugs()), [](const auto& instance) {
  std::string words(name(instance.param));
  std::erase(words, '-');
  return words;
});

}  // namespace
}  // namespace horo::sim
