// Programs of horo under `horo run`, on one host.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>

#include "tests/launcher/launched.h"
#include "tests/workload.h"

#include "horo/base/build.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

TEST(RunJob, RanksMeetInSharedMemory) {
  const Outcome outcome = run_horo({"-np", "3", test_program("barrier")}, {"OMP_NUM_THREADS=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // No knob that the launcher sets is unknown to the engine.
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(contains(outcome.out, text("rank ", rank, " of 3, local ", rank, " of 3, over shm, sum 3")))
        << outcome.out;
  }
}

TEST(RunJob, AKilledRankIsTheFirstAlthoughItsPeersNoticeSooner) {
  Launched launched({.words = {horo_program(), "run", "-np", "3", test_program("barrier"), "stay"}});
  ASSERT_TRUE(launched.wait_for_lines("rank ", 3)) << launched.err();
  const std::string out = launched.out();
  kill(numbers_behind(out.substr(out.find("rank 1 of 3")), "pid ").at(0), SIGKILL);
  EXPECT_EQ(launched.wait(Deadline::after_seconds(30)), 137) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "rank 1 on localhost failed first: signal 9 (Killed)")) << launched.err();
}

TEST(RunJob, ARankThatNeverJoinsIsNamedByTheOthersAndByTheLauncher) {
  const bool patient = long_tests();
  const std::string program = text("test $HORO_RANK = 1 && exec tail -f /dev/null; exec ", test_program("barrier"));
  // The launcher speaks after ten seconds, the ranks at their own limit.
  const Outcome outcome = run_horo({"-np", "3", "--gloo-timeout-seconds", patient ? "14" : "8", "sh", "-c", program});
  EXPECT_NE(outcome.code, 0);
  EXPECT_TRUE(contains(outcome.err, "rank 1 of 3 did not join")) << outcome.err;
  EXPECT_EQ(contains(outcome.err, "still waiting for rank 1"), patient) << outcome.err;
}

TEST(RunJob, SixtyFourRanksJoinAndLeave) {
  if (build_info().sanitizers == "thread") GTEST_SKIP() << "TSan's memory leaves no room for 64 segments";
  const Time begin = Clock::now();
  const Outcome outcome = run_horo({"-np", "64", test_program("barrier")});
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("  64 ranks started, met and ended in %.2f s\n", seconds);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(lines_of(outcome.out).size(), 64u);
  EXPECT_LT(seconds, 60);
}

}  // namespace
}  // namespace horo::test
