#include "cli/run/ending.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace horo::cli::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = Ending::Step;

const Time kNow{seconds(50)};

TEST(Ending, AsksWaitsAndKillsUntilNothingIsLeft) {
  Ending ending;
  EXPECT_EQ(ending.step(kNow), Step::kNothing);
  EXPECT_TRUE(ending.deadline().is_never());
  EXPECT_EQ(ending.begin(seconds(5), kNow), Step::kAsk);
  EXPECT_TRUE(ending.has_sent(SIGTERM));
  EXPECT_FALSE(ending.has_sent(SIGKILL));
  EXPECT_EQ(ending.step(kNow + seconds(4)), Step::kNothing);
  EXPECT_EQ(ending.deadline().at(), kNow + seconds(5));
  EXPECT_EQ(ending.step(kNow + seconds(5)), Step::kKill);
  EXPECT_TRUE(ending.has_sent(SIGKILL));
  EXPECT_EQ(ending.step(kNow + seconds(5)), Step::kNothing);
  ending.child_ended();
  EXPECT_EQ(ending.step(kNow + seconds(5)), Step::kKill);
  EXPECT_EQ(ending.step(kNow + seconds(5) + Ending::kRound), Step::kKill);
}

TEST(Ending, CanBeHurried) {
  Ending ending;
  EXPECT_EQ(ending.begin(seconds(5), kNow), Step::kAsk);
  EXPECT_EQ(ending.begin(seconds(9), kNow + seconds(1)), Step::kNothing);
  EXPECT_EQ(ending.deadline().at(), kNow + seconds(5));
  EXPECT_EQ(ending.begin(seconds(0), kNow + seconds(2)), Step::kKill);
}

TEST(Ending, WithoutGraceKillsAtOnce) {
  Ending ending;
  EXPECT_EQ(ending.begin(seconds(0), kNow), Step::kKill);
}

TEST(Ending, GivesUpOnWhatCannotBeKilled) {
  Ending ending;
  static_cast<void>(ending.begin(seconds(0), kNow));
  int rounds = 0;
  for (Time now = kNow; !ending.gave_up(); now = ending.deadline().at()) {
    static_cast<void>(ending.step(now));
    ASSERT_LT(++rounds, 1000);
  }
  EXPECT_TRUE(ending.deadline().is_never());
  EXPECT_EQ(ending.step(kNow + seconds(60)), Step::kNothing);
}

}  // namespace
}  // namespace horo::cli::launch
