#include "horo/base/awake_limit.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(AwakeLimit, IsLookedAtEverySecondUntilItsEnd) {
  const Time start = Time() + seconds(100);
  AwakeLimit limit(milliseconds(2500), start);
  EXPECT_EQ(limit.next_look(), start + seconds(1));
  EXPECT_FALSE(limit.expired(start + milliseconds(999)));
  EXPECT_FALSE(limit.expired(start + milliseconds(1100)));
  EXPECT_EQ(limit.next_look(), start + milliseconds(2100)) << "a second after the last look";
  EXPECT_FALSE(limit.expired(start + milliseconds(2400)));
  EXPECT_EQ(limit.next_look(), start + milliseconds(2500));
  EXPECT_TRUE(limit.expired(start + milliseconds(2500)));
}

TEST(AwakeLimit, DoesNotPassWhileNobodyCanLook) {
  const Time start = Time() + seconds(100);
  AwakeLimit limit(seconds(3), start);
  EXPECT_FALSE(limit.expired(start + seconds(61))) << "the process was stopped for a minute";
  EXPECT_FALSE(limit.expired(start + seconds(62)));
  EXPECT_TRUE(limit.expired(start + seconds(63))) << "and has been awake for three seconds";
}

}  // namespace
}  // namespace horo
