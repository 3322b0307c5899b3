#include "horo/rendezvous/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace horo::rendezvous {
namespace {

constexpr uint64_t kGroup = 7;

template <class Wanted>
std::vector<Wanted> pick(const std::vector<Output>& outputs) {
  std::vector<Wanted> picked;
  for (const Output& output : outputs) {
    if (auto* value = std::get_if<Wanted>(&output)) picked.push_back(*value);
  }
  return picked;
}

LostSet lost_set(std::initializer_list<Loss> losses) {
  LostSet set;
  for (const Loss& loss : losses) set.add(loss);
  return set;
}

constexpr auto kFlushTimeout = std::chrono::seconds(30);

/// One rank of four under a hand-held clock, with one group of everyone.
class MembershipTest : public testing::Test {
 protected:
  MembershipTest() { step(input::Opened{kGroup, {0, 1, 2, 3}}); }

  std::vector<Output> step(const Input& input) { return membership_.step(input, now_); }
  std::vector<Output> lose(int rank, LossReason reason = LossReason::kKilled) {
    return step(input::Lost{{rank, reason}});
  }
  std::vector<Output> report(uint64_t completed, uint64_t held) {
    uint64_t epoch = 5 + membership_.lost().size();
    return step(input::Reported{epoch, {kGroup, completed, held}});
  }
  std::vector<Output> hear(int from, MessageKind kind, const LostSet& lost, std::vector<Report> reports = {}) {
    return step(input::Received{from, {kind, 5, lost, std::move(reports)}});
  }
  std::vector<Output> hear_flush(int from, const LostSet& lost, uint64_t completed, uint64_t held) {
    return hear(from, MessageKind::kFlush, lost, {{kGroup, completed, held}});
  }

  Time now_{};
  Membership membership_{Membership::Options{1, 4, 5, kFlushTimeout}};
  LostSet three_ = lost_set({{3, LossReason::kKilled}});
};

TEST_F(MembershipTest, ALossIsToldToEveryoneAndStopsTheGroupsOfTheLostRank) {
  step(input::Opened{8, {0, 1}});
  auto outputs = lose(3);
  auto sends = pick<output::Send>(outputs);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, (std::vector<int>{0, 2}));
  EXPECT_EQ(sends[0].message.kind, MessageKind::kRevoke);
  EXPECT_TRUE(sends[0].message.lost.contains(3));
  auto revokes = pick<output::Revoke>(outputs);
  ASSERT_EQ(revokes.size(), 1u);
  EXPECT_EQ(revokes[0].groups, std::vector<uint64_t>{kGroup});
  EXPECT_EQ(revokes[0].epoch, 6u);
  EXPECT_TRUE(lose(3).empty()) << "told once";
}

TEST_F(MembershipTest, AnEvictedRankIsToldOfItsEviction) {
  auto sends = pick<output::Send>(lose(2, LossReason::kFrozen));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, (std::vector<int>{0, 3, 2}));
}

TEST_F(MembershipTest, RanksThatAreSilentTogetherAreEvictedTogether) {
  auto sends = pick<output::Send>(step(input::Silent{{0, 2}}));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, (std::vector<int>{3, 0, 2}));
  EXPECT_EQ(sends[0].message.lost, lost_set({{0, LossReason::kFrozen}, {2, LossReason::kFrozen}}));
}

TEST_F(MembershipTest, ASideWithoutAQuorumIsNotBelievedAndCountsAsGone) {
  step(input::Job{{0, 1, 2, 3}});
  const LostSet others = lost_set({{0, LossReason::kFrozen}, {1, LossReason::kFrozen}, {2, LossReason::kFrozen}});
  auto outputs = hear(3, MessageKind::kRevoke, others);
  EXPECT_TRUE(pick<output::Fence>(outputs).empty());
  EXPECT_EQ(membership_.lost(), lost_set({{3, LossReason::kLink}}));
  // It is told, like everybody that is evicted.
  EXPECT_EQ(pick<output::Send>(outputs).at(0).to, (std::vector<int>{0, 2, 3}));
}

TEST_F(MembershipTest, ASideWithAQuorumIsBelieved) {
  step(input::Job{{0, 1, 2, 3}});
  auto fences = pick<output::Fence>(hear(0, MessageKind::kRevoke, lost_set({{1, LossReason::kFrozen}})));
  ASSERT_EQ(fences.size(), 1u);
  EXPECT_EQ(fences[0].by, 0);
}

TEST_F(MembershipTest, WhereNobodyAsksForAQuorumEverySideIsBelieved) {
  const LostSet others = lost_set({{0, LossReason::kFrozen}, {1, LossReason::kFrozen}, {2, LossReason::kFrozen}});
  EXPECT_EQ(pick<output::Fence>(hear(3, MessageKind::kRevoke, others)).size(), 1u);
}

TEST_F(MembershipTest, TheViewIsInstalledWithTheFlushOfEverySurvivor) {
  lose(3);
  EXPECT_EQ(pick<output::Send>(report(10, 10)).at(0).message.kind, MessageKind::kFlush);
  EXPECT_TRUE(hear_flush(0, three_, 10, 10).empty());
  EXPECT_EQ(membership_.waiting_for(), std::vector<int>{2});
  EXPECT_EQ(membership_.epoch(), 5u);
  auto outputs = hear_flush(2, three_, 10, 10);
  auto installs = pick<output::Install>(outputs);
  ASSERT_EQ(installs.size(), 1u);
  EXPECT_EQ(installs[0].epoch, 6u);
  EXPECT_EQ(installs[0].members, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(pick<output::Decide>(outputs).at(0).final, 10u);
  EXPECT_EQ(membership_.epoch(), 6u);
}

TEST_F(MembershipTest, WhatOneSurvivorCompletedIsServedByTheLowestWhoHoldsIt) {
  lose(3);
  report(11, 12);
  hear_flush(0, three_, 10, 10);
  auto decides = pick<output::Decide>(hear_flush(2, three_, 12, 12));
  ASSERT_EQ(decides.size(), 1u);
  EXPECT_EQ(decides[0].final, 12u);
  EXPECT_FALSE(decides[0].await) << "it holds operation 12 itself";
  EXPECT_EQ(decides[0].serve, (std::vector<Transfer>{{0, 11, 12}}));
}

TEST_F(MembershipTest, WhoLacksAResultAwaitsIt) {
  lose(3);
  report(10, 10);
  hear_flush(0, three_, 12, 12);
  auto decides = pick<output::Decide>(hear_flush(2, three_, 12, 13));
  ASSERT_EQ(decides.size(), 1u);
  EXPECT_EQ(decides[0].await, (Transfer{0, 11, 12}));
  EXPECT_TRUE(decides[0].serve.empty());
}

TEST_F(MembershipTest, AFurtherLossAsksForFreshReportsAndReplacesTheDecision) {
  lose(3);
  report(10, 10);
  hear_flush(2, three_, 10, 10);
  hear_flush(0, three_, 12, 12);
  auto both = lost_set({{0, LossReason::kKilled}, {3, LossReason::kKilled}});
  auto outputs = lose(0);
  EXPECT_EQ(pick<output::Revoke>(outputs).at(0).epoch, 7u);
  EXPECT_TRUE(step(input::Reported{6, {kGroup, 10, 10}}).empty()) << "an answer to the earlier revocation";
  EXPECT_TRUE(hear_flush(2, three_, 10, 10).empty()) << "about the earlier view";
  report(10, 10);
  auto decides = pick<output::Decide>(hear_flush(2, both, 10, 10));
  EXPECT_EQ(decides.at(0).final, 10u) << "nobody who is left has more";
  EXPECT_EQ(membership_.members(), (std::vector<int>{1, 2}));
}

TEST_F(MembershipTest, ResultsAreReleasedWhenEveryoneIsStable) {
  lose(3);
  report(10, 10);
  hear_flush(0, three_, 10, 10);
  hear_flush(2, three_, 10, 10);
  EXPECT_TRUE(hear(0, MessageKind::kStable, three_).empty());
  auto settled = step(input::Settled{6, kGroup});
  EXPECT_EQ(pick<output::Send>(settled).at(0).message.kind, MessageKind::kStable);
  EXPECT_TRUE(pick<output::Release>(settled).empty());
  auto releases = pick<output::Release>(hear(2, MessageKind::kStable, three_));
  EXPECT_EQ(releases.at(0).groups, std::vector<uint64_t>{kGroup});
  EXPECT_TRUE(membership_.waiting_for().empty());
}

TEST_F(MembershipTest, ARankThatHearsOfItsOwnEvictionPassesItOnAndIsFenced) {
  auto me = lost_set({{1, LossReason::kFrozen}});
  auto outputs = hear(2, MessageKind::kRevoke, me);
  EXPECT_EQ(pick<output::Send>(outputs).at(0).to, (std::vector<int>{0, 2, 3}));
  auto fences = pick<output::Fence>(outputs);
  ASSERT_EQ(fences.size(), 1u);
  EXPECT_EQ(fences[0].by, 2);
  EXPECT_EQ(fences[0].reason, LossReason::kFrozen);
  EXPECT_TRUE(membership_.ended());
  EXPECT_TRUE(lose(3).empty());
}

TEST_F(MembershipTest, AnEvictedRankThatStillSpeaksIsToldAgain) {
  lose(2, LossReason::kFrozen);
  auto sends = pick<output::Send>(hear(2, MessageKind::kRevoke, lost_set({{0, LossReason::kKilled}})));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, std::vector<int>{2});
  EXPECT_FALSE(membership_.lost().contains(0)) << "its word does not count any more";
}

TEST_F(MembershipTest, MessagesOfAnotherMembershipAreIgnored) {
  EXPECT_TRUE(step(input::Received{0, {MessageKind::kRevoke, 4, three_, {}}}).empty());
  EXPECT_TRUE(membership_.lost().empty());
}

TEST_F(MembershipTest, ARankThatDoesNotFlushInTimeIsEvicted) {
  lose(3);
  report(10, 10);
  hear_flush(0, three_, 10, 10);
  const Time limit = now_ + kFlushTimeout;
  std::vector<Output> outputs;
  while (outputs.empty()) {
    ASSERT_TRUE(membership_.next_tick());
    now_ = *membership_.next_tick();
    ASSERT_LE(now_, limit);
    outputs = step(input::Tick{});
  }
  EXPECT_EQ(now_, limit);
  EXPECT_EQ(membership_.lost().reason(2), LossReason::kFrozen);
  EXPECT_EQ(pick<output::Send>(outputs).at(0).to, (std::vector<int>{0, 2}));
}

TEST_F(MembershipTest, TheTimeThatThisRankWasPausedCountsForNobody) {
  lose(3);
  report(10, 10);
  hear_flush(0, three_, 10, 10);
  const Time limit = now_ + kFlushTimeout;
  now_ = *membership_.next_tick() + 10 * kFlushTimeout;
  EXPECT_TRUE(step(input::Tick{}).empty()) << "the machine was asleep, and the others with it";
  while (membership_.lost().size() == 1) {
    now_ = *membership_.next_tick();
    step(input::Tick{});
  }
  EXPECT_EQ(now_, limit + 10 * kFlushTimeout);
  EXPECT_EQ(membership_.lost().reason(2), LossReason::kFrozen);
}

TEST_F(MembershipTest, TheTimeThatThisRankTookForItsOwnReportCountsForNobody) {
  lose(3);
  now_ += 10 * kFlushTimeout;  // Say it was stopped.
  report(10, 10);
  hear_flush(0, three_, 10, 10);
  const Time limit = now_ + kFlushTimeout;
  while (membership_.lost().size() == 1) {
    now_ = *membership_.next_tick();
    step(input::Tick{});
  }
  EXPECT_EQ(now_, limit);
}

TEST_F(MembershipTest, AGroupOpenedWithALostMemberIsDecidedAtOnce) {
  lose(3);
  auto decides = pick<output::Decide>(step(input::Opened{9, {1, 3}}));
  EXPECT_EQ(decides.at(0).group, 9u);
  EXPECT_EQ(decides.at(0).final, 0u);
}

TEST_F(MembershipTest, AGoodbyeIsALossWithItsOwnReason) {
  auto sends = pick<output::Send>(step(input::Leave{}));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].message.lost.reason(1), LossReason::kLeft);
  EXPECT_TRUE(membership_.ended());
}

TEST_F(MembershipTest, TheLastSurvivorDecidesAlone) {
  lose(0);
  lose(2);
  lose(3);
  auto outputs = report(4, 5);
  EXPECT_EQ(pick<output::Decide>(outputs).at(0).final, 4u);
  EXPECT_EQ(membership_.members(), std::vector<int>{1});
}

TEST(LostSetTest, KeepsTheMoreCertainReasonAndComparesByRank) {
  auto a = lost_set({{4, LossReason::kLink}, {2, LossReason::kFrozen}});
  auto b = lost_set({{4, LossReason::kKilled}});
  EXPECT_TRUE(a.includes(b));
  EXPECT_FALSE(b.includes(a));
  EXPECT_FALSE(a.merge(b));
  EXPECT_EQ(a.to_string(), "rank 2 (frozen), rank 4 (killed)");
  EXPECT_TRUE(b.merge(a));
  EXPECT_TRUE(a.same_ranks(b));
}

}  // namespace
}  // namespace horo::rendezvous
