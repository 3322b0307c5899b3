// `horo run` as the driver of an elastic job. Its ranks are shell scripts that know nothing of horo, so that nobody is
// ever let in; tests/python/test_elastic_run.py has jobs that really grow.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/launcher/launched.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

int count_of(const std::string& all, const std::string& words) {
  int count = 0;
  for (size_t at = all.find(words); at != all.npos; at = all.find(words, at + 1)) ++count;
  return count;
}

bool says(const Launched& launched, const std::string& words) {
  return eventually([&] { return contains(launched.err(), words); }, Deadline::after_seconds(30));
}

/// Tells who it is, and ends when the file "stop" appears.
constexpr const char* kRank =
    "echo pid $$ seat $HORO_SEAT rank ${HORO_RANK-none} ${HOROVOD_SIZE-none} elastic $HOROVOD_ELASTIC at "
    "least $HORO_ELASTIC_MIN_RANKS at most ${HORO_ELASTIC_MAX_RANKS-all} on $HORO_HOSTNAME agent $PPID; "
    "until [ -e stop ]; do sleep 0.02; done; echo ends";

/// `horo run` in a folder of its own.
class ElasticRun : public testing::Test {
 protected:
  Launched::Options job(const std::vector<std::string>& flags, const std::string& script = kRank) const {
    Launched::Options options;
    options.words = {"/bin/sh", "-c", text("cd ", folder_.path(), "; exec \"$0\" \"$@\""), horo_program(), "run"};
    options.words.insert(options.words.end(), flags.begin(), flags.end());
    options.words.insert(options.words.end(), {"/bin/sh", "-c", script});
    options.variables = {"OMP_NUM_THREADS=1"};
    return options;
  }
  /// As one change: a script that reads it sees the old contents or the new ones.
  void write(const std::string& name, const std::string& contents, int mode = 0644) const {
    rename(folder_.write(name + ".new", contents, mode).c_str(), folder_.file(name).c_str());
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

TEST_F(ElasticRun, SlotsThatComeGetNewcomersAndTroubleWithTheScriptChangesNothing) {
  write("find", "#!/bin/sh\ncat hosts || { echo lost the list >&2; exit 3; }\n", 0755);
  write("hosts", "localhost:1\n");
  Launched launched(job({"-np", "1", "--max-np", "3", "--host-discovery-script", "./find"}));
  ASSERT_TRUE(launched.wait_for_lines("pid ", 1)) << launched.err();
  EXPECT_TRUE(contains(launched.out(), "seat 0 rank 0 1 elastic 1 at least 1 at most 3 on localhost"))
      << launched.out();
  write("hosts", "localhost:7\n");
  ASSERT_TRUE(launched.wait_for_lines("pid ", 3)) << launched.out() << launched.err();
  // A newcomer knows its seat and no rank.
  EXPECT_TRUE(contains(launched.out(), "seat 2 rank none none elastic 1 at least 1 at most 3 on localhost"))
      << launched.out();
  write("hosts", "<html>\n");
  ASSERT_TRUE(says(launched, "./find prints no list of hosts: output of ./find:1")) << launched.err();
  unlink(folder_.file("hosts").c_str());
  ASSERT_TRUE(says(launched, "./find failed with code 3 (it says: ")) << launched.err();
  // Those who have not joined and whose slots are gone are ended; the rank stays.
  write("hosts", "localhost:1\n");
  std::vector<pid_t> pids = numbers_behind(launched.out(), "pid ");
  const std::string out = launched.out();
  std::erase(pids, numbers_behind(out.substr(out.find("[0]<stdout>:")), "pid ").at(0));
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(20))) << launched.err();
  write("stop", "");
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(launched.out().find("[3]"), std::string::npos) << launched.out();
  EXPECT_EQ(count_of(launched.err(), "the hosts that are known stay"), 2) << launched.err();
}

TEST_F(ElasticRun, ADeadRanksSlotIsUsedAgainAfterACooldownAndWhoWaitsAtTheEndIsEndedQuietly) {
  const std::string script = text("test \"$HORO_RANK\" = 1 && exit 3; ", kRank);
  Launched launched(
      job({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1", "0.2", "--grace-period", "0.5"}, script));
  ASSERT_TRUE(launched.wait_for_lines("seat 2 rank none", 1)) << launched.out() << launched.err();
  // It is no rank yet, and the end of the job does not wait for it: it would never end by itself.
  const std::string out = launched.out();
  kill(numbers_behind(out.substr(out.find("[2]<stdout>:")), "pid ").at(0), SIGSTOP);
  write("stop", "");
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "rank 1 on localhost is lost (exit code 3); the job goes on with 1 rank"))
      << launched.err();
  EXPECT_TRUE(contains(launched.err(), "slot 1 of host localhost is used again in 0.")) << launched.err();
  EXPECT_TRUE(all_gone(numbers_behind(out, "pid "), Deadline::after_seconds(5)));
}

TEST_F(ElasticRun, TooFewRanksAreWaitedForAsLongAsTold) {
  const std::string script = text("test \"$HORO_RANK\" = 1 && exit 3; ", kRank);
  Launched launched(job({"-np", "2", "--min-np", "2", "--blacklist-cooldown-range", "100", "200", "--elastic-timeout",
                         "1", "--grace-period", "0.2"},
                        script));
  EXPECT_EQ(launched.wait(Deadline::after_seconds(20)), 3) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "1 rank is left, fewer than --min-np 2; waiting up to 1 s")) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "no others have come within 1 s (--elastic-timeout)")) << launched.err();
}

TEST_F(ElasticRun, RanksFinishTheirWorkWhenTheLauncherIsKilled) {
  Launched launched(
      job({"-np", "2", "--min-np", "1", "--output-filename", "logs"}, text(kRank, "; touch done.$HORO_SEAT")));
  ASSERT_TRUE(launched.wait_for_lines("pid ", 2)) << launched.err();
  std::vector<pid_t> pids = numbers_behind(launched.out(), "pid ");
  pids.push_back(numbers_behind(launched.out(), "agent ").at(0));
  launched.signal(SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
  ASSERT_TRUE(says(launched, "horo agent: the launcher is gone; 2 ranks on host ")) << launched.err();
  write("stop", "");
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(10))) << "the agent ends with its last rank";
  for (int seat : {0, 1}) {
    EXPECT_EQ(access(folder_.file(text("done.", seat)).c_str(), F_OK), 0) << seat;
    EXPECT_TRUE(contains(read(text("logs/rank.", seat, "/stdout")), "ends\n")) << seat;
  }
  EXPECT_EQ(count_of(launched.err(), "the launcher is gone"), 1);
}

TEST_F(ElasticRun, AnAgentWithoutItsLauncherEndsItsRanksWhenItIsAskedTo) {
  Launched launched(job({"-np", "2", "--min-np", "1", "--grace-period", "0.5"}, text("trap '' TERM; ", kRank)));
  ASSERT_TRUE(launched.wait_for_lines("pid ", 2)) << launched.err();
  std::vector<pid_t> pids = numbers_behind(launched.out(), "pid ");
  pids.push_back(numbers_behind(launched.out(), "agent ").at(0));
  launched.signal(SIGKILL);
  ASSERT_TRUE(says(launched, "the launcher is gone")) << launched.err();
  kill(pids.back(), SIGTERM);
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(20))) << launched.out() << launched.err();
}

}  // namespace
}  // namespace horo::test
