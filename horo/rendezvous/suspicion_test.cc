#include "horo/rendezvous/suspicion.h"

#include <gtest/gtest.h>

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
      constexpr char kKinds[] = {'p', 'n', 'r', 'e'};
      int rank = std::visit([](const auto& value) { return value.rank; }, output);
      events_.push_back({kKinds[output.index()], rank, (now_ - Time{}) / milliseconds(1)});
    }
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

}  // namespace
}  // namespace horo::rendezvous
