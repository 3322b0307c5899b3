#include "horo/base/failpoint.h"

#include <gtest/gtest.h>

#include "horo/base/deadline.h"

namespace horo {
namespace {

#ifdef HORO_FAILPOINTS

TEST(Failpoint, FailsAtThePassageThatIsToldAndOnce) {
  ASSERT_TRUE(arm_failpoints("a=error@2;b=error").ok());
  EXPECT_TRUE(pass_failpoint("a").ok());
  EXPECT_EQ(pass_failpoint("a").message(), "the failpoint a fails");
  EXPECT_TRUE(pass_failpoint("a").ok());
  EXPECT_FALSE(pass_failpoint("b").ok());
  EXPECT_TRUE(pass_failpoint("c").ok());
  EXPECT_EQ(passed_failpoints(), (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(arm_failpoints("").ok());
  EXPECT_TRUE(pass_failpoint("b").ok());
}

TEST(Failpoint, DelaysFromThePassageOnThatIsTold) {
  ASSERT_TRUE(arm_failpoints("slow=delay:30ms@2").ok());
  EXPECT_TRUE(pass_failpoint("slow").ok());
  for (int turn = 0; turn < 2; ++turn) {
    const Time before = Clock::now();
    EXPECT_TRUE(pass_failpoint("slow").ok());
    EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(30));
  }
}

TEST(Failpoint, KillsTheProcess) {
  EXPECT_EXIT(
      {
        (void)arm_failpoints("deadly=kill").ok();
        (void)pass_failpoint("deadly").ok();
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST(Failpoint, RefusesWhatItDoesNotUnderstand) {
  for (const char* words : {"a", "a=", "a=kill@", "a=kill@0", "a=delay:5", "a=delay:ms", "a=explode"}) {
    EXPECT_EQ(arm_failpoints(words).code(), Code::kInvalidArgument) << words;
  }
  EXPECT_TRUE(arm_failpoints("").ok());
}

#endif

TEST(Failpoint, PointsAreStatementsWhetherTheyAreBuiltOrNot) {
  const auto passes = []() -> Status {
    HORO_FAILPOINT("test.passed");
    HORO_FAILPOINT_TRY("test.tried");
    return {};
  };
  EXPECT_TRUE(passes().ok());
}

}  // namespace
}  // namespace horo
