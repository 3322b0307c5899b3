#include "cli/run/roster.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

using std::chrono::seconds;
using Kind = Roster::Step::Kind;
using Hosts = std::vector<Host>;

const Time kBegin{seconds(100)};

/// Ranks 0 and 1 on a, 2 on b: as many as the hosts offer.
Roster roster(RosterOptions options = {}, const Hosts& hosts = {{"a", 2}, {"b", 1}}, int ranks = 3) {
  return {options, hosts, *place_ranks(hosts, ranks)};
}

/// "start 3 a/1", "leave 2 b": what is to be done, without words.
std::vector<std::string> orders(Roster& roster, Time now = kBegin) {
  std::vector<std::string> list;
  for (const Roster::Step& step : roster.step(now)) {
    if (step.kind == Kind::kReach) list.push_back(text("reach ", step.host));
    if (step.kind == Kind::kGiveUp) list.push_back(text("give up ", step.host));
    if (step.kind == Kind::kRelease) list.push_back(text("release ", step.host));
    if (step.kind == Kind::kStart) list.push_back(text("start ", step.seat, " ", step.host, "/", step.slot));
    if (step.kind == Kind::kLeave) list.push_back(text("leave ", step.seat, " ", step.host));
    if (step.kind == Kind::kEnd) list.push_back(text("end ", step.seat, " ", step.host));
  }
  return list;
}

using Orders = std::vector<std::string>;

TEST(Roster, NewSlotsGetNewcomersWithSeatsOfTheirOwn) {
  Roster all = roster({.discovers = true});
  EXPECT_EQ(orders(all), Orders{});
  all.offered({{"a", 3}, {"b", 1}, {"c", 2}}, kBegin);
  EXPECT_EQ(orders(all), (Orders{"start 3 a/2", "reach c"}));
  EXPECT_EQ(orders(all), Orders{}) << "nothing is done twice";
  all.host_ready("c");
  EXPECT_EQ(orders(all), (Orders{"start 4 c/0", "start 5 c/1"}));
  // Who has left gives its slot back, but not its seat. Whether it has joined yet does not matter: it may do so just
  // now.
  all.rank_admitted(4, true);
  all.offered({{"a", 3}, {"b", 1}}, kBegin);
  EXPECT_EQ(orders(all), (Orders{"leave 5 c", "leave 4 c"}));
  all.rank_ended({4}, kBegin);
  // The other had not joined, and will not any more.
  all.refused(5);
  EXPECT_EQ(orders(all), Orders{"end 5 c"});
  all.refused(5);
  EXPECT_EQ(orders(all), Orders{}) << "nothing is done twice";
  all.rank_ended({.rank = 5, .signal = SIGTERM, .asked = true}, kBegin);
  EXPECT_EQ(orders(all), Orders{"release c"});
  all.offered({{"a", 3}, {"b", 1}, {"c", 1}}, kBegin);
  EXPECT_EQ(orders(all), Orders{"reach c"});
  all.host_ready("c");
  EXPECT_EQ(orders(all), Orders{"start 6 c/0"});
}

TEST(Roster, NobodyComesBeyondTheMostRanks) {
  Roster all = roster({.most_ranks = 4, .discovers = true});
  all.offered({{"a", 9}, {"b", 9}}, kBegin);
  EXPECT_EQ(orders(all), Orders{"start 3 a/2"});
  all.rank_ended({.rank = 0, .signal = SIGKILL}, kBegin);
  EXPECT_EQ(orders(all), Orders{"start 4 a/3"}) << "another slot takes its place";
}

TEST(Roster, RanksWhoseSlotsAreGoneAreAskedToLeaveAndEndedAtTheLimit) {
  Roster all = roster({.discovers = true, .leave_limit = seconds(30)});
  all.offered({{"a", 1}}, kBegin);
  EXPECT_EQ(orders(all), (Orders{"leave 1 a", "leave 2 b"}));
  EXPECT_EQ(all.deadline().at(), kBegin + seconds(30));
  all.rank_ended({2}, kBegin);
  EXPECT_EQ(orders(all), Orders{"release b"});
  EXPECT_EQ(orders(all, kBegin + seconds(30)), Orders{"end 1 a"});
  all.rank_ended({.rank = 1, .signal = SIGKILL, .asked = true}, kBegin);
  all.offered({{"a", 2}}, kBegin);
  EXPECT_EQ(orders(all), Orders{"start 3 a/1"}) << "who was asked to go has done nothing wrong";
}

TEST(Roster, TheLastRankWithTheStateStaysUntilAnotherHasIt) {
  Roster all = roster({.discovers = true});
  all.offered({{"c", 1}}, kBegin);
  EXPECT_EQ(orders(all), (Orders{"leave 1 a", "leave 0 a", "reach c"})) << "rank 2 stays";
  all.host_ready("c");
  EXPECT_EQ(orders(all), Orders{"start 3 c/0"});
  all.rank_admitted(3, true);
  EXPECT_EQ(orders(all), Orders{"leave 2 b"});
}

TEST(Roster, OneDeadRankCostsItsSlotAndNotItsHost) {
  Roster all = roster();
  all.rank_ended({.rank = 0, .signal = SIGKILL}, kBegin);
  const auto steps = all.step(kBegin);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].words, "slot 0 of host a is not used again (--blacklist-cooldown-range)");
  EXPECT_TRUE(all.deadline().is_never());
  EXPECT_FALSE(all.may_grow());
  // Fewer slots than before, and still as many as there are ranks: nobody has to go.
  all.offered({{"a", 1}, {"b", 1}}, kBegin);
  EXPECT_EQ(orders(all), Orders{});
}

TEST(Roster, ASlotIsUsedAgainAfterACooldownThatDoubles) {
  const Cooldown cooldown{seconds(2), seconds(20)};
  EXPECT_EQ(Roster::wait_after(cooldown, 1), seconds(2));
  EXPECT_EQ(Roster::wait_after(cooldown, 3), seconds(8));
  EXPECT_EQ(Roster::wait_after(cooldown, 1000), seconds(20));
  Roster all = roster({.cooldown = cooldown});
  Time now = kBegin;
  int seat = 0;
  for (const auto& [least, most] : {std::pair{2, 4}, std::pair{4, 6}, std::pair{8, 10}, std::pair{16, 18}, {20, 20}}) {
    all.rank_ended({.rank = seat, .code = 1}, now);
    EXPECT_TRUE(all.may_grow()) << "the job may wait for it";
    EXPECT_EQ(orders(all, now), Orders{});
    const Duration wait = all.deadline().at() - now;
    EXPECT_GE(wait, seconds(least));
    EXPECT_LE(wait, seconds(most));
    now += wait;
    seat = seat == 0 ? 3 : seat + 1;
    EXPECT_EQ(orders(all, now), Orders{text("start ", seat, " a/0")});
  }
}

TEST(Roster, WhatChanceAddsToACooldownFollowsFromTheSeed) {
  const auto wait = [](uint64_t seed) {
    Roster all = roster({.cooldown = Cooldown{seconds(2), seconds(20)}, .seed = seed});
    all.rank_ended({.rank = 1, .code = 1}, kBegin);
    orders(all);
    return all.deadline().at();
  };
  EXPECT_EQ(wait(7), wait(7));
  std::set<Time> different;
  for (uint64_t seed = 0; seed < 8; ++seed) different.insert(wait(seed));
  EXPECT_GT(different.size(), 4u);
}

TEST(Roster, AHostThatIsLostOrDoesNotAnswerIsLeftAside) {
  Roster all = roster({.cooldown = Cooldown{seconds(5), seconds(5)}, .discovers = true, .start_timeout = seconds(30)});
  all.host_lost("a", "cut off", kBegin);
  EXPECT_EQ(orders(all), Orders{});
  EXPECT_EQ(orders(all, kBegin + seconds(5)), Orders{"reach a"});
  EXPECT_EQ(orders(all, kBegin + seconds(34)), Orders{});
  EXPECT_EQ(orders(all, kBegin + seconds(35)), Orders{"give up a"});
  EXPECT_EQ(orders(all, kBegin + seconds(40)), Orders{"reach a"});
  all.host_ready("a");
  EXPECT_EQ(orders(all, kBegin + seconds(40)), (Orders{"start 3 a/0", "start 4 a/1"}));
  Roster strict = roster({.discovers = true});
  strict.offered({{"a", 2}, {"b", 1}, {"c", 1}}, kBegin);
  EXPECT_EQ(orders(strict), Orders{"reach c"});
  strict.host_lost("c", "no route", kBegin);
  const auto steps = strict.step(kBegin + seconds(3600));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].words, "host c cannot be used: no route; it is not used again (--blacklist-cooldown-range)");
}

TEST(Roster, ANewcomerThatFailsCostsItsSlotAndOneThatEndsWellIsNotFollowed) {
  Roster all = roster({.cooldown = Cooldown{seconds(5), seconds(5)}, .discovers = true});
  all.offered({{"a", 4}, {"b", 1}}, kBegin);
  EXPECT_EQ(orders(all), (Orders{"start 3 a/2", "start 4 a/3"}));
  all.rank_ended({.rank = 3, .code = 1, .error = "no such file"}, kBegin);
  all.rank_ended({4}, kBegin);
  const auto steps = all.step(kBegin);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].words,
            "slot 2 of host a is used again in 5 s; newcomer 3 ended before it had joined (no such file)");
  EXPECT_EQ(orders(all, kBegin + seconds(3600)), Orders{"start 5 a/2"});
}

TEST(Roster, AfterTheEndOfTrainingNobodyComesOrGoes) {
  Roster all = roster({.discovers = true});
  all.stop();
  all.offered({{"a", 9}}, kBegin);
  EXPECT_EQ(orders(all), Orders{});
  EXPECT_FALSE(all.may_grow());
}

}  // namespace
}  // namespace horo::cli::launch
