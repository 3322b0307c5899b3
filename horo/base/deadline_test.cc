#include "horo/base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace horo {
namespace {

using namespace std::chrono_literals;

constexpr Time kNow{std::chrono::hours(5)};

TEST(Deadline, NeverPassesByDefault) {
  Deadline never;
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.expired(Time::max() - 1ns));
  EXPECT_EQ(never.remaining(kNow), Duration::max());
  EXPECT_EQ(never.poll_milliseconds(kNow), -1);
}

TEST(Deadline, PassesAtItsInstant) {
  Deadline deadline(kNow + 10ms);
  EXPECT_FALSE(deadline.expired(kNow));
  EXPECT_FALSE(deadline.expired(kNow + 10ms - 1ns));
  EXPECT_TRUE(deadline.expired(kNow + 10ms));
  EXPECT_EQ(deadline.remaining(kNow), 10ms);
  EXPECT_EQ(deadline.remaining(kNow + 1s), 0ms);
}

TEST(Deadline, PollTimesAreRoundedUpSoThatNoWaitEndsEarly) {
  EXPECT_EQ(Deadline(kNow + 1ns).poll_milliseconds(kNow), 1);
  EXPECT_EQ(Deadline(kNow + 10ms).poll_milliseconds(kNow), 10);
  EXPECT_EQ(Deadline(kNow + 10ms + 1ns).poll_milliseconds(kNow), 11);
  EXPECT_EQ(Deadline(kNow - 1s).poll_milliseconds(kNow), 0);
  EXPECT_EQ(Deadline(kNow + std::chrono::hours(24 * 365)).poll_milliseconds(kNow), 1 << 30);
}

TEST(Deadline, TheEarlierOfTwoIsChosen) {
  Deadline soon(kNow + 1s);
  Deadline late(kNow + 2s);
  EXPECT_EQ(soon.earlier(late).at(), soon.at());
  EXPECT_EQ(late.earlier(soon).at(), soon.at());
  EXPECT_EQ(Deadline::never().earlier(late).at(), late.at());
}

TEST(Deadline, SecondsAreCountedFromNow) {
  Time before = Clock::now();
  Deadline deadline = Deadline::after_seconds(0.25);
  EXPECT_GE(deadline.at(), before + 250ms);
  EXPECT_LE(deadline.at(), Clock::now() + 250ms);
}

TEST(Deadline, SecondsThatTheClockCannotCountNeverPassAndNoneHavePassed) {
  for (double seconds : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(Deadline::after_seconds(seconds).is_never()) << seconds;
  }
  EXPECT_FALSE(Deadline::after_seconds(3e9).expired());
  EXPECT_FALSE(Deadline::after_seconds(3e9).is_never());
  for (double seconds : {0.0, -1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(Deadline::after_seconds(seconds).expired()) << seconds;
  }
}

}  // namespace
}  // namespace horo
