// One member's side of agreeing, among members that a seeded scheduler lets act and speak in any order.
#include "horo/engine/negotiation.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "horo/base/text.h"
#include "horo/engine/world_testing.h"

namespace horo::engine {
namespace {

using std::chrono::milliseconds;

/// What every member should hand in during a step, in an order of its own; some differ on purpose.
struct Script {
  std::vector<std::vector<Unit>> units;  ///< By member.
  std::set<std::string> keys, wrong;     ///< Handed in; of these, those the members do not agree about.
};

Script script_for(std::mt19937_64& random, int members, int step) {
  Script script;
  script.units.resize(static_cast<size_t>(members));
  for (int tensor = 0; tensor < 6; ++tensor) {
    Unit unit = one(text("t", tensor), static_cast<Kind>(random() % 3), {static_cast<int64_t>(1 + random() % 2), 3});
    if (random() % 4 == 0) {
      Tensor second = unit.tensors[0];
      second.name = text("t", tensor, "b");
      unit.tensors.push_back(second);
    }
    const bool wrong = step > 0 && random() % 6 == 0 && members > 1;
    const auto odd = static_cast<size_t>(random() % static_cast<uint64_t>(members));
    for (size_t member = 0; member < script.units.size(); ++member) {
      Unit mine = unit;
      if (wrong && member == odd) mine.tensors[0].dtype = DType::kF64;
      script.units[member].push_back(mine);
    }
    script.keys.insert(unit.key());
    if (wrong) script.wrong.insert(unit.key());
  }
  for (std::vector<Unit>& units : script.units) std::shuffle(units.begin(), units.end(), random);
  return script;
}

/// Members hand in several steps' units; a member goes on to its next step when all of its units are answered.
void run_random_steps(uint64_t seed) {
  SCOPED_TRACE(text("seed ", seed, ": TEST_SEED=", seed, " replays it"));
  std::mt19937_64 random(seed);
  const int members = 1 + static_cast<int>(random() % 64);
  const Plan plan = plan_for(random, members);
  World world(plan, seed);
  constexpr int kSteps = 4;
  std::vector<Script> scripts;
  for (int step = 0; step < kSteps; ++step) scripts.push_back(script_for(random, members, step));
  struct Place {
    size_t step = 0, next = 0;
    std::set<std::string> open;
  };
  std::vector<Place> places(static_cast<size_t>(members));
  world.on_done = [&](int member, const std::string& key) { places[static_cast<size_t>(member)].open.erase(key); };
  const auto advance = [&](int member) {
    Place& place = places[static_cast<size_t>(member)];
    if (place.step == kSteps) return false;
    const std::vector<Unit>& units = scripts[place.step].units[static_cast<size_t>(member)];
    if (place.next == units.size()) {
      if (!place.open.empty()) return false;
      ++place.step;
      place.next = 0;
      return true;
    }
    place.open.insert(units[place.next].key());
    world.announce(member, units[place.next++]);
    return true;
  };
  for (int idle = 0; idle < 200;) {
    bool moved = false;
    for (int tries = 0; tries < 8; ++tries) {
      const int member = static_cast<int>(world.random(static_cast<size_t>(members)));
      moved |= advance(member);
      if (world.random(3) == 0) world.step(member);
      moved |= world.random(2) == 0 && world.deliver();
    }
    if (!moved) world.settle();
    idle = moved ? 0 : idle + 1;
    bool all = true;
    for (const Place& place : places) all &= place.step == kSteps;
    if (all) break;
  }
  world.settle();
  for (int member = 0; member < members; ++member) {
    EXPECT_EQ(places[static_cast<size_t>(member)].step, kSteps) << "member " << member << " is stuck";
    EXPECT_EQ(world.log(member).runs, world.log(0).runs) << "member " << member << " ran something else";
    EXPECT_EQ(world.log(member).failures, world.log(0).failures);
    EXPECT_EQ(world.at(member).incomplete(), 0u);
  }
  std::map<std::string, size_t> runs, expected;
  for (const std::string& batch : world.log(0).runs) {
    std::istringstream keys(batch);
    for (std::string key; std::getline(keys, key, '+');) ++runs[key];
  }
  for (const Script& script : scripts) {
    for (const std::string& key : script.keys) expected[key] += script.wrong.contains(key) ? 0 : 1;
  }
  std::erase_if(expected, [](const auto& entry) { return entry.second == 0; });
  EXPECT_EQ(runs, expected);
  const uint64_t before = world.messages();
  world.settle();
  EXPECT_EQ(world.messages(), before) << "an idle set sends messages";
}

TEST(Negotiation, AnyOrderAndAnyDelayEndsInTheSameRunsOnAllMembers) {
  const uint64_t first = base_seed();
  for (uint64_t seed = first; seed < first + 300; ++seed) {
    run_random_steps(seed);
    if (HasFailure()) return;
  }
}

TEST(Negotiation, SettingsChangeAtTheSameBatchOnAllMembers) {
  Plan plan{7, {0, 0, 1, 1, 1, 2, 2}};
  plan.tuner = TunerOptions{.space = tuning_space({}, {}, {}), .warmup = 1, .steps = 2};
  World world(plan, base_seed());
  for (int step = 0; step < 2000; ++step) {
    for (int member = 0; member < plan.members; ++member) {
      for (int tensor = 0; tensor < 3; ++tensor) world.announce(member, one(text("t", tensor)));
    }
    world.settle();
  }
  EXPECT_GE(world.log(0).tunings, 10u);
  EXPECT_GE(world.log(0).measured, 20u);
  for (int member = 1; member < plan.members; ++member) {
    EXPECT_EQ(world.log(member).runs, world.log(0).runs);
    EXPECT_EQ(world.log(member).measured, 0u) << "the root measures";
  }
  const std::vector<std::string>& runs = world.log(0).runs;
  const auto last = std::find_if(runs.rbegin(), runs.rend(), [](const auto& run) { return run[0] == 'f'; });
  ASSERT_NE(last, runs.rend());
  EXPECT_EQ(*last, tuning_text({})) << "nothing was faster";
  EXPECT_GT(last - runs.rbegin(), 500) << "it has stopped";
}

TEST(Negotiation, AUnitThatIsKnownTravelsAsANumber) {
  World world({3, {0, 0, 0}}, 1);
  for (int round = 0; round < 5; ++round) {
    for (int member = 0; member < 3; ++member) world.announce(member, one("gradient"));
    world.settle();
  }
  EXPECT_EQ(world.log(2).runs.size(), 5u);
  EXPECT_EQ(world.at(2).counters().in_full, 1u);
  EXPECT_EQ(world.at(2).counters().known, 4u);
}

TEST(Negotiation, AMismatchNamesTensorRanksAndBothValues) {
  World world({4, {0, 0, 1, 1}}, 1);
  for (int member = 0; member < 4; ++member) {
    world.announce(member, one("w", Kind::kAllreduce, {member == 2 ? 5 : 4}));
  }
  world.settle();
  for (int member = 0; member < 4; ++member) {
    ASSERT_TRUE(world.log(member).failures.contains("w"));
    const std::string& message = world.log(member).failures.at("w");
    EXPECT_NE(message.find("'w'"), std::string::npos) << message;
    EXPECT_NE(message.find("[4] on ranks 100, 101, 103"), std::string::npos) << message;
    EXPECT_NE(message.find("[5] on rank 102"), std::string::npos) << message;
  }
  for (int member = 0; member < 4; ++member) world.announce(member, one("w"));
  world.settle();
  EXPECT_EQ(world.log(3).runs, std::vector<std::string>{"w"});
}

TEST(Negotiation, AllgatherMayDifferInTheFirstExtentOnly) {
  World world({2, {0, 0}}, 1);
  for (int member = 0; member < 2; ++member) {
    world.announce(member, one("rows", Kind::kAllgather, {member + 1, 3}));
    world.announce(member, one("columns", Kind::kAllgather, {3, member + 1}));
  }
  world.settle();
  EXPECT_EQ(world.log(1).runs, std::vector<std::string>{"rows"});
  EXPECT_TRUE(world.log(1).failures.contains("columns"));
}

TEST(Negotiation, AJoinedRankHoldsNobodyUpAndTheLastToJoinIsTold) {
  World world({3, {0, 0, 1}}, 1);
  world.at(1).join();
  world.settle();
  for (int member : {0, 2}) world.announce(member, one("g"));
  for (int member : {0, 2}) world.announce(member, one("h", Kind::kAllgather));
  world.settle();
  for (int member = 0; member < 3; ++member) {
    EXPECT_EQ(world.log(member).runs, std::vector<std::string>{"g"});
    ASSERT_TRUE(world.log(member).failures.contains("h"));
    EXPECT_NE(world.log(member).failures.at("h").find("rank 101"), std::string::npos);
  }
  world.at(0).join();
  world.settle();
  EXPECT_TRUE(world.log(0).joins.empty());
  world.at(2).join();
  world.settle();
  for (int member = 0; member < 3; ++member) EXPECT_EQ(world.log(member).joins, std::vector<int>{2});
  // And everything works again, with all of them needed.
  for (int member : {0, 1}) world.announce(member, one("g"));
  world.settle();
  EXPECT_EQ(world.log(0).runs.size(), 1u);
  world.announce(2, one("g"));
  world.settle();
  EXPECT_EQ(world.log(0).runs.size(), 2u);
}

TEST(Negotiation, AStallNamesExactlyTheMissingMembersThroughTheTree) {
  World world({6, {0, 0, 1, 1, 2, 2}}, 1);
  for (int member : {1, 3, 4}) world.announce(member, one("late"));
  world.settle();
  EXPECT_TRUE(world.log(0).stalls.empty());
  world.pass(std::chrono::seconds(61));
  world.settle();
  ASSERT_FALSE(world.log(0).stalls.empty());
  EXPECT_EQ(world.log(0).stalls.back().key, "late");
  EXPECT_EQ(world.log(0).stalls.back().missing, (std::vector<int>{0, 2, 5}));
  for (int member : {0, 2, 5}) world.announce(member, one("late"));
  world.settle();
  EXPECT_EQ(world.log(4).runs, std::vector<std::string>{"late"});
}

TEST(Negotiation, AStallIsNamedAgainAndGivenUpAtItsLimit) {
  Plan plan{2, {0, 0}};
  plan.stall_abort = std::chrono::seconds(150);
  World world(plan, 1);
  world.announce(1, one("late"));
  world.settle();
  for (size_t warnings : {1, 2}) {
    world.pass(std::chrono::seconds(60));
    world.settle();
    EXPECT_EQ(world.log(0).stalls.size(), warnings);
    EXPECT_FALSE(world.log(0).abort);
  }
  // A unit that came later has its own time.
  world.announce(1, one("later"));
  world.pass(std::chrono::seconds(31));
  world.settle();
  for (int member : {0, 1}) {
    ASSERT_TRUE(world.log(member).abort);
    EXPECT_NE(world.log(member).abort->find("'late'"), std::string::npos) << *world.log(member).abort;
    EXPECT_NE(world.log(member).abort->find("rank 100"), std::string::npos) << *world.log(member).abort;
  }
}

TEST(Negotiation, AStallAmongTheRanksOfAnotherHostIsGivenUpAtItsLimit) {
  Plan plan{4, {0, 0, 1, 1}};
  plan.stall_abort = std::chrono::seconds(150);
  World world(plan, 1);
  world.announce(3, one("late"));
  world.settle();
  for (size_t warnings : {1, 2}) {
    world.pass(std::chrono::seconds(60));
    world.settle();
    EXPECT_EQ(world.log(0).stalls.size(), warnings);
    EXPECT_FALSE(world.log(0).abort);
  }
  world.pass(std::chrono::seconds(25));
  world.settle();
  EXPECT_FALSE(world.log(0).abort) << "before the limit";
  EXPECT_FALSE(world.at(0).next().is_never()) << "the root does not wait for the next word from below";
  world.pass(std::chrono::seconds(6));
  world.settle();
  for (int member : {0, 1, 2, 3}) ASSERT_TRUE(world.log(member).abort) << member;
}

TEST(Negotiation, AStallBelowThatIsOverIsNotGivenUp) {
  Plan plan{4, {0, 0, 1, 1}};
  plan.stall_abort = std::chrono::seconds(150);
  World world(plan, 1);
  world.announce(3, one("late"));
  world.settle();
  world.pass(std::chrono::seconds(60));
  world.settle();
  EXPECT_EQ(world.log(0).stalls.size(), 1u);
  for (int member : {0, 1, 2}) world.announce(member, one("late"));
  world.settle();
  EXPECT_EQ(world.log(3).runs, std::vector<std::string>{"late"});
  for (int minute = 0; minute < 5; ++minute) {
    world.pass(std::chrono::seconds(60));
    world.settle();
  }
  EXPECT_FALSE(world.log(0).abort);
  EXPECT_TRUE(world.at(0).next().is_never());
}

// Member 2 passes on what 3 has handed in by its number, and then that 3 has joined; but the root forgets the number
// before it hears it. Both must say it again, 3 as a member that has not joined.
TEST(Negotiation, WhatWasHandedInBeforeAJoinCountsWhenItsNumberIsForgottenOnTheWay) {
  for (Kind kind : {Kind::kAllgather, Kind::kAllreduce}) {
    Plan plan{4, {0, 0, 1, 1}};
    plan.capacity = 1;
    plan.threshold = 0;
    World world(plan, 1);
    for (int member = 0; member < 4; ++member) world.announce(member, one("u", kind));
    world.settle();
    for (int member = 0; member < 4; ++member) world.announce(member, one("v"));
    world.step(3);
    world.deliver(3, 2);
    world.step(1);
    world.deliver(1, 0);
    world.deliver(2, 0);  // The root has v from everybody, and lets the window pass.
    world.announce(3, one("u", kind));
    world.at(3).join();
    world.announce(2, one("u", kind));
    world.step(3);
    world.deliver(3, 2);
    world.pass(std::chrono::milliseconds(2));
    world.step(0);  // Runs v and forgets u.
    world.deliver(2, 0);
    world.deliver(0, 2);
    for (int member : {0, 1}) world.announce(member, one("u", kind));
    world.settle();
    for (int member = 0; member < 4; ++member) {
      EXPECT_EQ(world.log(member).runs, (std::vector<std::string>{"u", "v", "u"})) << member;
      EXPECT_TRUE(world.log(member).failures.empty()) << world.log(member).failures.begin()->second;
      EXPECT_EQ(world.at(member).incomplete(), 0u) << member;
    }
  }
}

TEST(Negotiation, ARankThatWaitsClosesTheWindow) {
  World world({2, {0, 0}}, 1);
  for (int member = 0; member < 2; ++member) world.announce(member, one("x"));
  world.at(1).set_waiting(true);
  world.step(1);
  while (world.deliver()) {
  }
  world.step(0);
  EXPECT_EQ(world.log(0).runs, std::vector<std::string>{"x"}) << "although no time has passed";
}

TEST(Negotiation, WithoutAWaiterTheWindowGathers) {
  World world({1, {0}}, 1);
  world.announce(0, one("x"));
  world.step(0);
  EXPECT_TRUE(world.log(0).runs.empty());
  EXPECT_FALSE(world.at(0).next().is_never());
  world.announce(0, one("y"));
  world.pass(milliseconds(1));
  world.step(0);
  EXPECT_EQ(world.log(0).runs, std::vector<std::string>{"x+y"});
  EXPECT_TRUE(world.at(0).next().is_never());
}

TEST(Negotiation, WordsOfStrangersAndOfNobodyAreRefused) {
  World world({3, {0, 0, 0}}, 1);
  const std::vector<std::byte> nothing = encode(Up{});
  EXPECT_EQ(world.at(1).receive(2, nothing, world.now()).code(), Code::kCorrupt);
  Down down;
  down.batches.push_back({{{77, std::nullopt}}});
  EXPECT_EQ(world.at(1).receive(0, encode(down), world.now()).code(), Code::kCorrupt);
  EXPECT_EQ(world.at(0).receive(1, std::vector<std::byte>(3), world.now()).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::engine
