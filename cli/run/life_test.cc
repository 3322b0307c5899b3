#include "cli/run/life.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <random>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Phase = JobLife::Phase;
using Kind = JobLife::Action::Kind;

const Time kBegin{seconds(100)};

LifeOptions two_hosts() { return {{"a", "b"}, {2, 1}, seconds(30), seconds(5)}; }

/// A job on two hosts, ranks 0 and 1 on a, 2 on b, that runs.
JobLife running() {
  JobLife life(two_hosts(), kBegin);
  life.host_ready(0, kBegin);
  life.host_ready(1, kBegin);
  life.take_actions();
  return life;
}

std::vector<Kind> kinds(JobLife& life) {
  std::vector<Kind> list;
  for (const auto& action : life.take_actions()) list.push_back(action.kind);
  return list;
}

void end_hosts(JobLife& life) {
  life.host_ended(0, kBegin);
  life.host_ended(1, kBegin);
}

/// The same, where two ranks are enough.
JobLife elastic() {
  LifeOptions options = two_hosts();
  options.least_ranks = 2;
  JobLife life(options, kBegin);
  life.host_ready(0, kBegin);
  life.host_ready(1, kBegin);
  life.take_actions();
  return life;
}

TEST(JobLife, AnElasticJobGoesOnWithoutALostRankAndEndsWellWithTheOthers) {
  for (const RankEnd& lost : {RankEnd{.rank = 2, .signal = SIGKILL}, RankEnd{.rank = 2, .code = 3}}) {
    JobLife life = elastic();
    life.rank_ended(lost, kBegin);
    life.host_ended(1, kBegin);
    const auto said = life.take_actions();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].words.find("rank 2 on b is lost"), std::string::npos) << said[0].words;
    EXPECT_NE(said[0].words.find("goes on with 2 ranks"), std::string::npos) << said[0].words;
    EXPECT_EQ(life.phase(), Phase::kRunning);
    life.rank_ended({0}, kBegin);
    life.rank_ended({1}, kBegin);
    EXPECT_EQ(life.phase(), Phase::kEnding);
    life.host_ended(0, kBegin);
    EXPECT_EQ(life.phase(), Phase::kDone);
    EXPECT_EQ(life.exit_code(), 0);
  }
}

TEST(JobLife, AnElasticJobEndsWithTheFirstLostRanksCodeWhenTooFewAreLeft) {
  JobLife life = elastic();
  life.rank_ended({.rank = 1, .signal = SIGSEGV}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.take_actions();
  life.rank_ended({.rank = 0, .code = 7}, kBegin + seconds(60));
  EXPECT_EQ(life.phase(), Phase::kEnding);
  const auto actions = life.take_actions();
  EXPECT_NE(actions[0].words.find("1 rank is left, fewer than --min-np 2"), std::string::npos) << actions[0].words;
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 128 + SIGSEGV);
}

TEST(JobLife, AnElasticJobLosesTheRanksOfAHostThatIsLost) {
  JobLife life = elastic();
  life.host_lost(1, "cut off", kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.rank_ended({0}, kBegin);
  life.rank_ended({1}, kBegin);
  life.host_ended(0, kBegin);
  EXPECT_EQ(life.exit_code(), 0);
  JobLife worse = elastic();
  worse.host_lost(0, "cut off", kBegin);
  EXPECT_EQ(worse.phase(), Phase::kEnding);
  worse.host_ended(1, kBegin);
  EXPECT_EQ(worse.phase(), Phase::kDone);
  EXPECT_EQ(worse.exit_code(), 1);
  EXPECT_NE(worse.failure()->words.find("host a: cut off"), std::string::npos);
}

TEST(JobLife, ACommandThatCannotBeRunEndsAnElasticJobToo) {
  JobLife life = elastic();
  life.rank_ended({.rank = 0, .code = 127, .error = "no such file"}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kEnding);
}

TEST(JobLife, AnElasticJobWithTooFewRanksWaitsWhileOthersMayCome) {
  JobLife life = elastic();
  life.others_may_come(true, kBegin);
  life.rank_ended({.rank = 0, .signal = SIGKILL}, kBegin);
  life.rank_ended({.rank = 1, .signal = SIGKILL}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  EXPECT_NE(life.take_actions().back().words.find("1 rank is left, fewer than --min-np 2; waiting up to 600 s"),
            std::string::npos);
  EXPECT_EQ(life.deadline().at(), kBegin + seconds(600));
  life.add_rank(3, 1);
  EXPECT_EQ(life.deadline().at(), kBegin + seconds(600)) << "it has not joined yet";
  life.rank_admitted(3, true, kBegin);
  EXPECT_TRUE(life.deadline().is_never());
  // Another loss, and nobody comes in time.
  life.rank_ended({.rank = 3, .code = 1}, kBegin + seconds(1));
  life.tick(kBegin + seconds(601));
  EXPECT_EQ(life.phase(), Phase::kEnding);
  const auto actions = life.take_actions();
  EXPECT_TRUE(std::any_of(actions.begin(), actions.end(), [](const auto& action) {
    return action.words.find("no others have come within 600 s (--elastic-timeout)") != std::string::npos;
  }));
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 128 + SIGKILL);
}

TEST(JobLife, AnElasticJobThatWaitsEndsWhenNobodyCanComeAnyMore) {
  JobLife life = elastic();
  life.others_may_come(true, kBegin);
  life.host_lost(0, "cut off", kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.others_may_come(false, kBegin);
  EXPECT_EQ(life.phase(), Phase::kEnding);
}

TEST(JobLife, NewcomersThatNobodyLetInEndQuietlyWithTheJob) {
  JobLife life = elastic();
  life.add_rank(3, 0);
  life.add_rank(4, 1);
  for (int rank : {0, 1, 2}) life.rank_ended({rank}, kBegin);
  EXPECT_EQ(kinds(life), std::vector{Kind::kLook});
  EXPECT_EQ(life.phase(), Phase::kRunning) << "one of them may have been admitted a moment ago";
  life.rank_admitted(4, true, kBegin);
  life.looked(kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.rank_ended({4}, kBegin);
  EXPECT_EQ(kinds(life), std::vector{Kind::kLook});
  life.looked(kBegin);
  EXPECT_EQ(kinds(life), (std::vector{Kind::kEnd, Kind::kEnd}));
  life.rank_ended({.rank = 3, .signal = SIGTERM, .asked = true}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.phase(), Phase::kDone);
  EXPECT_EQ(life.exit_code(), 0);
}

TEST(JobLife, ANewcomerThatEndsWellBeforeAnybodyLookedCountsAsOneOfTheRanks) {
  JobLife life = elastic();
  life.others_may_come(true, kBegin);
  for (int rank : {1, 2}) life.rank_ended({.rank = rank, .signal = SIGKILL}, kBegin);
  life.add_rank(3, 0);
  life.rank_admitted(3, true, kBegin);
  life.others_may_come(false, kBegin);
  life.rank_ended({3}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.rank_ended({0}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 0);
}

TEST(JobLife, NewcomersAloneCannotGoOn) {
  JobLife life = elastic();
  life.others_may_come(true, kBegin);
  life.add_rank(3, 0);
  for (int rank : {0, 1, 2}) life.rank_ended({.rank = rank, .code = 5}, kBegin);
  life.looked(kBegin);
  EXPECT_EQ(life.phase(), Phase::kEnding);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 5);
}

TEST(JobLife, WhoLeavesIsNeitherLostNorTheEnd) {
  JobLife life = elastic();
  life.rank_is_leaving(2);
  life.rank_ended({2}, kBegin);
  const auto said = life.take_actions();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].words, "rank 2 on b has left; the job goes on with 2 ranks");
  EXPECT_FALSE(life.somebody_ended_well());
  // Had it failed, the others would still decide.
  JobLife other = elastic();
  other.rank_is_leaving(2);
  other.rank_ended({.rank = 2, .signal = SIGTERM, .asked = true}, kBegin);
  other.rank_ended({0}, kBegin);
  other.rank_ended({1}, kBegin);
  end_hosts(other);
  EXPECT_EQ(other.exit_code(), 0);
}

TEST(JobLife, AHostThatComesLaterIsNotWaitedForAndEndsWithTheOthers) {
  JobLife life = elastic();
  const size_t unreachable = life.add_host("c");
  life.host_lost(unreachable, "no route", kBegin);
  EXPECT_TRUE(life.take_actions().empty());
  const size_t host = life.add_host("d");
  life.host_ready(host, kBegin);
  EXPECT_TRUE(life.take_actions().empty());
  life.add_rank(3, host);
  EXPECT_EQ(life.host_of(3), host);
  EXPECT_EQ(life.host_name(host), "d");
  for (int rank : {0, 1, 2}) life.rank_ended({rank}, kBegin);
  life.looked(kBegin);
  end_hosts(life);
  EXPECT_EQ(life.phase(), Phase::kEnding);
  life.host_ended(host, kBegin);
  EXPECT_EQ(life.phase(), Phase::kDone);
}

TEST(JobLife, StartsRanksOnceAllHostsAreReady) {
  JobLife life(two_hosts(), kBegin);
  life.host_ready(1, kBegin);
  EXPECT_TRUE(life.take_actions().empty());
  EXPECT_EQ(life.phase(), Phase::kStarting);
  life.host_ready(0, kBegin);
  EXPECT_EQ(kinds(life), std::vector{Kind::kStart});
  EXPECT_EQ(life.phase(), Phase::kRunning);
  EXPECT_TRUE(life.deadline().is_never());
}

TEST(JobLife, EndsWellWhenAllRanksDo) {
  JobLife life = running();
  life.rank_ended({0}, kBegin);
  life.rank_ended({2}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
  life.rank_ended({1}, kBegin);
  EXPECT_EQ(kinds(life), (std::vector{Kind::kEnd, Kind::kEnd}));
  end_hosts(life);
  EXPECT_EQ(life.phase(), Phase::kDone);
  EXPECT_EQ(life.exit_code(), 0);
}

TEST(JobLife, AFailingRankEndsAllHostsAndGivesItsCode) {
  JobLife life = running();
  life.rank_ended({.rank = 2, .code = 3}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kEnding);
  EXPECT_EQ(kinds(life), (std::vector{Kind::kEnd, Kind::kEnd}));
  life.rank_ended({.rank = 0, .signal = SIGTERM, .asked = true}, kBegin);
  life.rank_ended({.rank = 1, .code = 9}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 3);
  EXPECT_EQ(life.failure()->rank.rank, 2);
  ASSERT_EQ(life.also_failed().size(), 1u);
  EXPECT_EQ(life.also_failed()[0].rank, 1);
}

TEST(JobLife, ARankKilledByASignalCountsAsShellsCount) {
  JobLife life = running();
  life.rank_ended({.rank = 1, .signal = SIGSEGV}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 128 + SIGSEGV);
}

TEST(JobLife, AKilledRankExplainsThePeersThatNoticedItFirst) {
  JobLife life = running();
  life.rank_ended({.rank = 0, .code = 1}, kBegin);
  life.rank_ended({.rank = 1, .signal = SIGKILL}, kBegin + milliseconds(250));
  EXPECT_EQ(life.failure()->rank.rank, 1);
  EXPECT_EQ(life.exit_code(), 137);
  ASSERT_EQ(life.also_failed().size(), 1u);
  EXPECT_EQ(life.also_failed()[0].rank, 0);
}

TEST(JobLife, ALateDeathOrOneWeCausedExplainsNothing) {
  JobLife late = running();
  late.rank_ended({.rank = 0, .code = 1}, kBegin);
  late.rank_ended({.rank = 1, .signal = SIGKILL}, kBegin + seconds(2));
  EXPECT_EQ(late.exit_code(), 1);
  JobLife ours = running();
  ours.rank_ended({.rank = 0, .code = 1}, kBegin);
  ours.rank_ended({.rank = 1, .signal = SIGKILL, .asked = true}, kBegin);
  EXPECT_EQ(ours.exit_code(), 1);
}

TEST(JobLife, ASignalEndsItAndTheSecondAtOnce) {
  JobLife life = running();
  life.signalled(SIGINT, kBegin);
  EXPECT_EQ(kinds(life), (std::vector{Kind::kEnd, Kind::kEnd}));
  life.signalled(SIGINT, kBegin);
  EXPECT_EQ(kinds(life), (std::vector{Kind::kEndNow, Kind::kEndNow}));
  life.rank_ended({.rank = 0, .code = 1}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 128 + SIGINT);
}

TEST(JobLife, ALostHostEndsTheOthers) {
  JobLife life = running();
  life.host_lost(1, "the connection broke", kBegin);
  const auto actions = life.take_actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kEnd);
  EXPECT_EQ(actions[0].host, 0u);
  life.host_ended(0, kBegin);
  EXPECT_EQ(life.phase(), Phase::kDone);
  EXPECT_EQ(life.exit_code(), 1);
  EXPECT_NE(life.failure()->words.find("host b: the connection broke"), std::string::npos);
}

TEST(JobLife, HostsThatNeverAnswerAreNamedAndGivenUp) {
  JobLife life(two_hosts(), kBegin);
  life.host_ready(0, kBegin);
  EXPECT_EQ(life.deadline().at(), kBegin + JobLife::kPatience);
  life.tick(kBegin + JobLife::kPatience);
  const auto said = life.take_actions();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].words, "still waiting for host b after 5 s");
  life.tick(kBegin + seconds(30));
  EXPECT_NE(life.failure()->words.find("no answer from host b within 30 s"), std::string::npos);
  EXPECT_EQ(kinds(life), std::vector{Kind::kEnd});
  life.host_ended(0, kBegin + seconds(31));
  EXPECT_EQ(life.phase(), Phase::kDone);
  EXPECT_EQ(life.exit_code(), 1);
}

TEST(JobLife, HostsThatDoNotEndAreAbandoned) {
  JobLife life = running();
  life.rank_ended({.rank = 0, .code = 4}, kBegin);
  life.take_actions();
  EXPECT_EQ(life.deadline().at(), kBegin + seconds(5) + JobLife::kLastWords);
  life.tick(life.deadline().at());
  EXPECT_EQ(kinds(life), std::vector{Kind::kAbandon});
  EXPECT_EQ(life.phase(), Phase::kDone);
  EXPECT_EQ(life.exit_code(), 4);
}

TEST(JobLife, AHostThatEndsWithoutTellingOfItsRanksIsAFailure) {
  JobLife life = running();
  life.rank_ended({0}, kBegin);
  end_hosts(life);
  EXPECT_EQ(life.exit_code(), 1);
}

TEST(JobLife, ARankEndsOnce) {
  JobLife life = running();
  for (int i = 0; i < 3; ++i) life.rank_ended({0}, kBegin);
  EXPECT_EQ(life.phase(), Phase::kRunning);
}

TEST(JobLife, AlwaysEndsWhateverComesInWhateverOrder) {
  const unsigned first = std::random_device{}();
  for (unsigned seed = first; seed < first + 2000; ++seed) {
    SCOPED_TRACE(text("seed ", seed));
    std::mt19937 random(seed);
    JobLife life({{"a", "b", "c"}, {2, 1, 3}, seconds(30), seconds(5)}, kBegin);
    Time now = kBegin;
    std::vector<int> ranks{0, 1, 2, 3, 4, 5};
    std::optional<JobLife::Failure> seen;
    for (int i = 0; i < 60 && life.phase() != Phase::kDone; ++i) {
      now += milliseconds(random() % 500);
      const size_t host = random() % 3;
      switch (random() % 12) {
        case 0:
          life.host_lost(host, "gone", now);
          break;
        case 1:
          life.host_ended(host, now);
          break;
        case 2:
          life.signalled(SIGTERM, now);
          break;
        case 3:
        case 4:
          if (!ranks.empty() && life.phase() != Phase::kStarting) {
            life.rank_ended({.rank = ranks.back(), .code = random() % 3 == 0 ? 7 : 0}, now);
            ranks.pop_back();
          }
          break;
        default:
          life.host_ready(host, now);
      }
      if (life.deadline().expired(now)) life.tick(now);
      if (seen) {
        EXPECT_EQ(life.failure()->kind, seen->kind);
      }
      seen = life.failure();
    }
    for (int i = 0; i < 100 && life.phase() != Phase::kDone; ++i) {
      if (life.phase() == Phase::kRunning) life.signalled(SIGTERM, now);
      now = life.deadline().at();
      life.tick(now);
    }
    EXPECT_EQ(life.phase(), Phase::kDone);
    EXPECT_EQ(life.exit_code() == 0, !life.failure().has_value());
  }
}

}  // namespace
}  // namespace horo::cli::launch
