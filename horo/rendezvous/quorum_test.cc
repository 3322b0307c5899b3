#include "horo/rendezvous/quorum.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace horo::rendezvous {
namespace {

std::vector<int> ranks_of(unsigned bits) {
  std::vector<int> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    if ((bits >> rank & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<Loss> all_with(unsigned bits, LossReason reason, std::vector<Loss> losses = {}) {
  for (int rank : ranks_of(bits)) losses.push_back({rank, reason});
  std::sort(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.rank < b.rank; });
  return losses;
}

TEST(Quorum, OneSurvivorIsEnoughWhenTheOthersWereKilledOrHaveLeft) {
  const std::vector<Loss> gone{{0, LossReason::kKilled}, {1, LossReason::kLeft}, {2, LossReason::kKilled}};
  EXPECT_TRUE(check_quorum({0, 1, 2, 3}, {3}, gone).ok());
}

TEST(Quorum, OneSurvivorOfTwoGoesOnOnlyWithTheLowestRankWhenTheOtherIsSilent) {
  EXPECT_TRUE(check_quorum({4, 7}, {4}, {{7, LossReason::kFrozen}}).ok());
  const Status other = check_quorum({4, 7}, {7}, {{4, LossReason::kLink}});
  EXPECT_EQ(other.code(), Code::kUnavailable);
  EXPECT_NE(other.message().find("1 of 2 ranks are here, and rank 4 may be alive"), std::string::npos) << other;
}

TEST(Quorum, RanksOfEarlierJobsDoNotCount) {
  EXPECT_TRUE(check_quorum({1, 2, 3}, {2, 3}, {{0, LossReason::kFrozen}, {1, LossReason::kFrozen}}).ok());
}

// The dead may have gone on with rank 2, without us, before they died.
TEST(Quorum, TheDeadCountAgainstASideAsLongAsSomebodyIsSilent) {
  const std::vector<Loss> losses{{0, LossReason::kKilled}, {1, LossReason::kKilled}, {2, LossReason::kFrozen}};
  const Status overlooked = check_quorum({0, 1, 2, 3, 4}, {3, 4}, losses);
  EXPECT_EQ(overlooked.code(), Code::kUnavailable);
  EXPECT_NE(overlooked.message().find("2 of 5 ranks are here, and rank 2 may be alive"), std::string::npos)
      << overlooked;
  EXPECT_TRUE(check_quorum({1, 2, 3, 4}, {1, 4}, {{2, LossReason::kFrozen}, {3, LossReason::kKilled}}).ok());
}

// Every cut of a job of up to eight ranks into two sides, with every choice of ranks that have died, before the cut or
// after one side went on with them, and are known to be dead to both sides or to one.
TEST(Quorum, OfTwoSidesAtMostOneGoesOnAndWithoutDeathsExactlyOne) {
  for (int size = 1; size <= 8; ++size) {
    const unsigned all = (1U << size) - 1;
    for (unsigned dead = 0; dead < all; ++dead) {
      for (unsigned left = 0; left <= all; ++left) {
        if ((left & dead) != 0) continue;
        const unsigned right = all & ~dead & ~left;
        if (left == 0 || right == 0) continue;
        const auto judge = [&](unsigned here, unsigned there, unsigned known_dead) {
          auto losses = all_with(dead & ~known_dead, LossReason::kFrozen, all_with(known_dead, LossReason::kKilled));
          return check_quorum(ranks_of(all), ranks_of(here), all_with(there, LossReason::kLink, losses)).ok();
        };
        const bool one = judge(left, right, dead), other = judge(right, left, dead);
        EXPECT_FALSE(one && other) << size << " ranks, dead " << dead << ", side " << left;
        EXPECT_TRUE(dead != 0 || one || other) << size << " ranks, side " << left;
        EXPECT_FALSE(one && judge(right, left, 0)) << size << " ranks, side " << left;
        // The left side went on while the dead were alive and with it: then the right side must not now.
        EXPECT_FALSE(check_quorum(ranks_of(all), ranks_of(left | dead), all_with(right, LossReason::kFrozen)).ok() &&
                     other)
            << size << " ranks, dead " << dead << ", side " << left;
      }
    }
  }
}

}  // namespace
}  // namespace horo::rendezvous
