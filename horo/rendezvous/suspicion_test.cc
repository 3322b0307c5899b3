#include "horo/rendezvous/suspicion.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace horo::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Runs the machine under a hand-held clock and keeps what it asked for, with the time in milliseconds.
class SuspicionTest : public testing::Test {
 protected:
  struct Event {
    char kind;
    int rank;
    int64_t at;
    friend bool operator==(const Event&, const Event&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Event& event) {
      return out << event.kind << event.rank << '@' << event.at;
    }
  };

  void step(const watch::Input& input) {
    for (const auto& output : suspicion_.step(input, now_)) {
      // A probe, a name, one that recovers, a question for consent, its answer, an eviction.
      constexpr char kKinds[] = {'p', 'n', 'r', 'a', 'c', 'e'};
      const auto* evict = std::get_if<watch::Evict>(&output);
      const auto* consent = std::get_if<watch::Consent>(&output);
      if (consent != nullptr) agrees_ = consent->agrees;
      if (evict != nullptr) has_quorum_ = evict->has_quorum;
      std::vector<int> ranks = evict != nullptr ? evict->ranks : std::vector<int>{rank_of(output)};
      for (int rank : ranks) events_.push_back({kKinds[output.index()], rank, (now_ - Time{}) / milliseconds(1)});
    }
  }
  static int rank_of(const watch::Output& output) {
    return std::visit(
        [](const auto& value) {
          if constexpr (requires { value.rank; }) return value.rank;
          return -1;
        },
        output);
  }
  /// The same, in a job where some answer whatever they are asked.
  void run_until(Time end, const std::vector<int>& answer, bool agree = true) {
    while (suspicion_.next_tick() && *suspicion_.next_tick() <= end) {
      const size_t before = events_.size();
      run_until(*suspicion_.next_tick());
      for (const Event& event : std::vector<Event>(events_.begin() + static_cast<int64_t>(before), events_.end())) {
        if (std::find(answer.begin(), answer.end(), event.rank) == answer.end()) continue;
        if (event.kind == 'p') step(watch::Answered{event.rank});
        if (event.kind == 'a') step(watch::Consented{event.rank, agree});
      }
    }
    now_ = end;
  }
  std::vector<int> evicted() const {
    std::vector<int> ranks;
    for (const Event& event : events_) {
      if (event.kind == 'e') ranks.push_back(event.rank);
    }
    return ranks;
  }
  /// Ticks as a loop would, each exactly when it is due.
  void run_until(Time end) {
    while (suspicion_.next_tick() && *suspicion_.next_tick() <= end) {
      now_ = *suspicion_.next_tick();
      step(watch::Tick{});
    }
    now_ = end;
  }
  Time at(int64_t ms) const { return Time{} + milliseconds(ms); }
  bool saw(char kind) const {
    return std::any_of(events_.begin(), events_.end(), [&](const Event& event) { return event.kind == kind; });
  }

  Suspicion suspicion_;
  Time now_{};
  std::vector<Event> events_;
  bool agrees_ = false, has_quorum_ = false;
};

TEST_F(SuspicionTest, NothingIsSentWhenNobodyWaits) {
  EXPECT_FALSE(suspicion_.next_tick());
  step(watch::WaitingOn{{1, 2}, now_});
  step(watch::WaitingOn{{}, now_});
  EXPECT_FALSE(suspicion_.next_tick());
  run_until(at(60000));
  EXPECT_TRUE(events_.empty());
}

TEST_F(SuspicionTest, ShortWaitsAskNobody) {
  for (int64_t ms = 0; ms < 2000; ms += 90) {
    run_until(at(ms));
    step(watch::WaitingOn{{static_cast<int>(ms / 90 % 2)}, now_});
  }
  EXPECT_TRUE(events_.empty());
}

TEST_F(SuspicionTest, ASilentRankIsAskedOnceNamedWithinASecondAndEvictedAtTheLimit) {
  step(watch::WaitingOn{{3}, now_});
  run_until(at(20000));
  ASSERT_EQ(events_.size(), 3u);
  EXPECT_EQ(events_[0], (Event{'p', 3, 100}));
  EXPECT_EQ(events_[1].kind, 'n');
  EXPECT_LE(events_[1].at, 1000);
  EXPECT_EQ(events_[2].kind, 'e');
  EXPECT_GE(events_[2].at, 10100);
  EXPECT_LE(events_[2].at, 10400);
  EXPECT_FALSE(suspicion_.next_tick());
}

TEST_F(SuspicionTest, ARankThatAnswersMayBeLateWithoutLimit) {
  step(watch::WaitingOn{{3}, now_});
  for (int64_t ms = 0; ms < 600000; ms += 50) {
    size_t before = events_.size();
    run_until(at(ms));
    if (events_.size() > before) step(watch::Answered{3});
  }
  EXPECT_FALSE(saw('n'));
  EXPECT_FALSE(saw('e'));
  EXPECT_LT(events_.size(), 4000u);
}

TEST_F(SuspicionTest, ARankThatFreezesLaterIsNamedWithinASecondToo) {
  step(watch::WaitingOn{{3}, now_});
  run_until(at(100));
  step(watch::Answered{3});
  run_until(at(2000));
  ASSERT_GE(events_.size(), 3u);
  EXPECT_EQ(events_[2].kind, 'n');
  EXPECT_LE(events_[2].at, 100 + 1000);
}

TEST_F(SuspicionTest, ANamedRankThatAnswersRecovers) {
  step(watch::WaitingOn{{3}, now_});
  run_until(at(2000));
  step(watch::Answered{3});
  EXPECT_EQ(events_.back().kind, 'r');
  run_until(at(9000));
  EXPECT_FALSE(saw('e'));
}

TEST_F(SuspicionTest, AnObserverThatWasPausedItselfStartsAnew) {
  step(watch::WaitingOn{{3}, now_});
  run_until(at(8000));
  now_ = at(60000);
  step(watch::Tick{});
  EXPECT_FALSE(saw('e'));
  EXPECT_EQ(events_.back(), (Event{'p', 3, 60000})) << "a new question";
  run_until(at(69000));
  EXPECT_FALSE(saw('e'));
  run_until(at(71000));
  EXPECT_TRUE(saw('e')) << "the full time has passed again";
}

TEST_F(SuspicionTest, WaitingForOthersMeanwhileDoesNotResetTheClock) {
  step(watch::WaitingOn{{3}, now_});
  for (int64_t ms = 0; ms < 11000; ms += 100) {
    run_until(at(ms));
    bool even = ms / 100 % 2 == 0;
    step(watch::WaitingOn{even ? std::vector<int>{3} : std::vector<int>{2, 3}, now_});
  }
  EXPECT_TRUE(saw('e'));
}

TEST_F(SuspicionTest, AQuorumConsentsAndTheSilentRankIsEvictedAtTheLimit) {
  step(watch::Job{2, {0, 1, 2, 3, 4}});
  step(watch::WaitingOn{{0}, now_});
  run_until(at(9000), {1, 3, 4});
  EXPECT_FALSE(saw('a')) << "long before the limit nobody is asked";
  run_until(at(10400), {1, 3, 4});
  EXPECT_EQ(evicted(), (std::vector<int>{0}));
  EXPECT_TRUE(has_quorum_);
}

TEST_F(SuspicionTest, ARankThatHearsTooFewGivesUpAllOthersTogether) {
  step(watch::Job{2, {0, 1, 2, 3, 4}});
  step(watch::WaitingOn{{0}, now_});
  run_until(at(19000), {3});
  EXPECT_FALSE(saw('e')) << "ranks 1 and 4 may still answer";
  run_until(at(21000), {3});
  EXPECT_EQ(evicted(), (std::vector<int>{0, 1, 4}));
  EXPECT_FALSE(has_quorum_);
}

TEST_F(SuspicionTest, ARankThatIsHeardAgainEvictsNobody) {
  step(watch::Job{2, {0, 1, 2, 3, 4}});
  step(watch::WaitingOn{{0}, now_});
  run_until(at(15000));
  for (int rank : {0, 1, 3, 4}) step(watch::Answered{rank});
  for (int rank : {1, 3, 4}) step(watch::Consented{rank, true});
  run_until(at(60000), {0, 1, 3, 4});
  EXPECT_FALSE(saw('e'));
}

TEST_F(SuspicionTest, WhereARankIsKilledThoseThatAreLeftConsent) {
  step(watch::Job{1, {0, 1, 2, 3}});
  step(watch::Gone{{{0, LossReason::kKilled}}});
  step(watch::WaitingOn{{3}, now_});
  run_until(at(15000), {2});
  EXPECT_EQ(evicted(), (std::vector<int>{3}));
  EXPECT_FALSE(has_quorum_) << "two of four, without the lowest";
}

TEST_F(SuspicionTest, WhoIsToBeEvictedIsNotAgreedWith) {
  step(watch::Asked{3, {1}});
  EXPECT_TRUE(agrees_);
  step(watch::Asked{1, {3}});
  EXPECT_FALSE(agrees_);
  step(watch::Asked{2, {4}});
  EXPECT_TRUE(agrees_);
  now_ = at(5000);
  step(watch::Asked{1, {3}});
  EXPECT_TRUE(agrees_) << "nobody has wanted its end for long";
  step(watch::Gone{{{1, LossReason::kFrozen}}});
  step(watch::Asked{1, {3}});
  EXPECT_FALSE(agrees_);
}

TEST_F(SuspicionTest, WhoIsRefusedWaitsForTheOthersToDecide) {
  step(watch::Job{2, {0, 1, 2, 3, 4}});
  step(watch::WaitingOn{{0}, now_});
  run_until(at(40000), {1, 3, 4}, false);
  EXPECT_FALSE(saw('e'));
  run_until(at(41000), {1, 3, 4}, true);
  EXPECT_EQ(evicted(), (std::vector<int>{0}));
}

}  // namespace
}  // namespace horo::rendezvous
