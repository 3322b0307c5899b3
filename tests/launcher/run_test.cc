// `horo run` on one host: output, exit codes, ends of all kinds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/launcher/launched.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

/// Ranks of sh: each script sees its rank as $HORO_RANK.
std::vector<std::string> shell(int ranks, const std::string& script, std::vector<std::string> flags = {}) {
  flags.insert(flags.end(), {"-np", text(ranks), "/bin/sh", "-c", script});
  return flags;
}

std::string first_usable_core() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  int core = 0;
  while (core < CPU_SETSIZE && !CPU_ISSET(core, &mask)) ++core;
  return text(core);
}

TEST(Run, PrefixesOutputAndEndsWell) {
  const Outcome outcome = run_horo(shell(3, "echo hello from $HORO_RANK of $HORO_SIZE; echo trouble >&2"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(contains(outcome.out, text("[", rank, "]<stdout>:hello from ", rank, " of 3\n"))) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, text("[", rank, "]<stderr>:trouble\n"))) << outcome.err;
  }
}

TEST(Run, RanksFindTheirPlaceUnderBothNames) {
  const Outcome outcome = run_horo(shell(
      2,
      "echo $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HORO_LOCAL_SIZE $HORO_CROSS_RANK $HOROVOD_CROSS_SIZE "
      "$HORO_HOSTNAME $HORO_INTERFACE; test -n \"$HORO_STORE\" -a -n \"$HORO_JOB_ID\" -a -n \"$HORO_KEY_FD\""));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "]<stdout>:1 2 1 2 0 1 localhost 127.0.0.1\n")) << outcome.out;
}

TEST(Run, RanksShareTheCoresUnlessTheUserSaysHow) {
  const int cores = System().usable_cores();
  const auto expected = [&](int ranks) { return text("]<stdout>:threads ", std::max(1, cores / ranks), "\n"); };
  const std::string script = "echo threads $OMP_NUM_THREADS";
  const auto ran = [&](int ranks, const std::string& value) {
    return run_horo(shell(ranks, script), {"OMP_NUM_THREADS=" + value});  // Empty is as good as unset.
  };
  const Outcome several = ran(3, "");
  EXPECT_EQ(several.code, 0) << several.err;
  EXPECT_TRUE(contains(several.out, "[2" + expected(3))) << several.out;
  EXPECT_EQ(lines_of(several.err).size(), 1u) << several.err;
  EXPECT_TRUE(contains(several.err, text("OMP_NUM_THREADS is not set: it is ", std::max(1, cores / 3),
                                         " for each rank (usable cores: ", cores, ", ranks on the host: 3)")))
      << several.err;
  const Outcome one = ran(1, "");
  EXPECT_TRUE(contains(one.out, expected(1))) << one.out;
  EXPECT_EQ(one.err, "");
  const Outcome chosen = ran(2, "7");
  EXPECT_TRUE(contains(chosen.out, "[1]<stdout>:threads 7\n")) << chosen.out;
  EXPECT_EQ(chosen.err, "");
}

TEST(Run, OnlyTheCoresThatTheLauncherMayUseAreShared) {
  Launched launched({.words = {"taskset", "--cpu-list", first_usable_core(), horo_program(), "run", "-np", "2", "sh",
                               "-c", "echo threads $OMP_NUM_THREADS"},
                     .variables = {"OMP_NUM_THREADS="}});
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_TRUE(contains(launched.out(), "[1]<stdout>:threads 1\n")) << launched.out();
  EXPECT_TRUE(contains(launched.err(), "usable cores: 1,")) << launched.err();
}

TEST(Run, TheKeyIsOnADescriptorAndNowhereElse) {
  // 32 bytes on the descriptor; the environment and the command line of everybody have none of them.
  const Outcome outcome =
      run_horo(shell(1,
                     "od -An -tx1 -v < /proc/self/fd/$HORO_KEY_FD | tr -d ' \\n'; echo; "
                     "cat /proc/$$/environ /proc/$PPID/environ /proc/$PPID/cmdline | od -An -tx1 -v | tr -d ' \\n'"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u) << outcome.out;
  const std::string key = lines[0].substr(lines[0].find(':') + 1);
  EXPECT_EQ(key.size(), 64u) << lines[0];
  EXPECT_FALSE(contains(lines[1], key));
}

TEST(Run, GivesTheExitCodeOfTheFirstRankThatFailsAndItsLastLines) {
  const Outcome outcome =
      run_horo(shell(4, "if [ $HORO_RANK = 2 ]; then echo the reason >&2; exit 7; fi; exec tail -f /dev/null"));
  EXPECT_EQ(outcome.code, 7);
  EXPECT_TRUE(contains(outcome.err, "rank 2 on localhost failed first: exit code 7")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "  [2]<stderr>:the reason")) << outcome.err;
}

TEST(Run, ARankThatIsKilledCountsAs128PlusSignal) {
  const Outcome outcome = run_horo(shell(2, "[ $HORO_RANK = 0 ] && kill -KILL $$; exec tail -f /dev/null"));
  EXPECT_EQ(outcome.code, 137);
  EXPECT_TRUE(contains(outcome.err, "signal 9 (Killed)")) << outcome.err;
}

TEST(Run, ACommandThatDoesNotExistIsNamed) {
  const Outcome outcome = run_horo({"-np", "2", "no-such-command-anywhere"});
  EXPECT_EQ(outcome.code, 127);
  EXPECT_TRUE(contains(outcome.err, "did not start")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "command not found: 'no-such-command-anywhere'")) << outcome.err;
  TemporaryFolder folder;
  const Outcome forbidden = run_horo({"-np", "1", folder.write("no-program", "x", 0644)});
  EXPECT_EQ(forbidden.code, 126) << forbidden.err;
  EXPECT_TRUE(contains(forbidden.err, "Permission denied")) << forbidden.err;
  const Outcome missing = run_horo({"-np", "1", folder.file("absent")});
  EXPECT_EQ(missing.code, 127) << missing.err;
}

TEST(Run, ScriptsWithoutAFirstLineRunAsShellsRunThem) {
  TemporaryFolder folder;
  const Outcome outcome = run_horo({"-np", "1", folder.write("script", "echo ran with $1\n", 0755), "x y"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "ran with x y"));
}

TEST(Run, WordsOfTheCommandAreLeftAlone) {
  const Outcome outcome = run_horo({"-np", "1", "echo", "-np", "3", "--verbose", "a  b"});
  EXPECT_EQ(outcome.out, "[0]<stdout>:-np 3 --verbose a  b\n");
}

class Ends : public testing::TestWithParam<int> {};

TEST_P(Ends, ASignalToTheLauncherEndsTheWholeTree) {
  const int number = GetParam();
  // A child and a grandchild in sessions of their own, one of which does not listen to SIGTERM.
  const std::string script =
      "setsid sh -c 'trap \"\" TERM; echo pid $$; exec tail -f /dev/null' & "
      "echo pid $$; tail -f /dev/null";
  Launched launched({.words = {horo_program(), "run", "--grace-period", "0.5", "-np", "2", "/bin/sh", "-c", script}});
  ASSERT_TRUE(launched.wait_for_lines("pid ", 4)) << launched.out() << launched.err();
  const std::vector<pid_t> pids = numbers_behind(launched.out(), "pid ");
  launched.signal(number);
  const auto code = launched.wait(Deadline::after_seconds(10));
  if (number == SIGKILL) {
    EXPECT_EQ(code, 137);
  } else {
    EXPECT_EQ(code, 128 + number) << launched.err();
  }
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(number == SIGKILL ? 10 : 0.2)));
}

INSTANTIATE_TEST_SUITE_P(Run, Ends, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGKILL),
                         [](const auto& which) { return text("Signal", which.param); });

TEST(Run, ASecondCtrlCEndsAtOnce) {
  Launched launched({.words = {horo_program(), "run", "--grace-period", "600", "-np", "1", "/bin/sh", "-c",
                               "trap '' TERM; echo pid $$; exec tail -f /dev/null"}});
  ASSERT_TRUE(launched.wait_for_lines("pid ", 1)) << launched.err();
  launched.signal(SIGINT);
  EXPECT_FALSE(launched.wait(Deadline::after_seconds(0.3)));
  launched.signal(SIGINT);
  EXPECT_EQ(launched.wait(Deadline::after_seconds(10)), 130) << launched.err();
}

TEST(Run, RanksHaveTheGracePeriodToEndWell) {
  Launched launched({.words = {horo_program(), "run", "-np", "1", "/bin/sh", "-c",
                               "trap 'echo saved; exit 0' TERM; tail -f /dev/null & echo ready; wait; wait"}});
  ASSERT_TRUE(launched.wait_for_lines("ready", 1)) << launched.err();
  launched.signal(SIGTERM);
  EXPECT_EQ(launched.wait(Deadline::after_seconds(10)), 143);
  EXPECT_TRUE(contains(launched.out(), "saved")) << launched.out();
}

TEST(Run, OrphansAreGoneAfterAGoodEndToo) {
  const Outcome outcome =
      run_horo(shell(2,
                     "setsid sh -c 'echo pid $$; exec tail -f /dev/null' & setsid tail -f /dev/null & echo pid $!; "
                     "exit 0",
                     {"--grace-period", "1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto pids = numbers_behind(outcome.out, "pid ");
  EXPECT_GE(pids.size(), 2u) << outcome.out;
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(0.2)));
}

TEST(Run, AKilledAgentEndsTheJobAndWhatItLeaves) {
  Launched launched({.words = {horo_program(), "run", "-np", "1", "/bin/sh", "-c",
                               "setsid tail -f /dev/null & echo pid $!; echo agent $PPID; echo pid $$; wait"}});
  ASSERT_TRUE(launched.wait_for_lines("pid ", 2)) << launched.err();
  const auto pids = numbers_behind(launched.out(), "pid ");
  kill(numbers_behind(launched.out(), "agent ").at(0), SIGKILL);
  EXPECT_EQ(launched.wait(Deadline::after_seconds(10)), 1) << launched.err();
  EXPECT_TRUE(contains(launched.err(), "signal 9")) << launched.err();
  EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(5)));
}

TEST(Run, WhenNobodyReadsTheOutputAnyMoreTheJobEnds) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Launched launched({.words = {horo_program(), "run", "-np", "2", "yes"}, .output = ends[1]});
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  EXPECT_EQ(launched.wait(Deadline::after_seconds(10)), 128 + SIGPIPE) << launched.err();
}

TEST(Run, AReaderThatPausesPausesTheRanksAndNothingIsLost) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  constexpr int kLines = 100'000;
  Launched launched({.words = {horo_program(), "run", "-np", "2", "seq", text(kLines)}, .output = ends[1]});
  close(ends[1]);
  // Nobody reads for a while: the job cannot end, for its output does not fit anywhere.
  EXPECT_FALSE(launched.wait(Deadline::after_seconds(0.5)));
  std::string all;
  std::vector<char> bytes(1 << 16);
  for (ssize_t got = 0; (got = read(ends[0], bytes.data(), bytes.size())) > 0;) {
    all.append(bytes.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  int next[2] = {1, 1};
  for (const std::string& line : lines_of(all)) {
    const int rank = std::atoi(line.c_str() + 1);
    ASSERT_TRUE(rank == 0 || rank == 1) << line;
    ASSERT_EQ(line, text("[", rank, "]<stdout>:", next[rank]++));
  }
  EXPECT_EQ(next[0], kLines + 1);
  EXPECT_EQ(next[1], kLines + 1);
}

TEST(Run, OutputTortureNeverMixesLines) {
  // Long lines in small pieces, on both streams, of four ranks at once, with bytes of all kinds.
  const std::string script =
      "awk 'BEGIN { for (i = 0; i < 400; ++i) { s = sprintf(\"%c\", 97 + ENVIRON[\"HORO_RANK\"]); n = (i * 7919) % "
      "9000; "
      "for (j = 0; j < n; ++j) printf \"%s\", s; printf \"\\001\\377%d\\n\", n; "
      "if (i % 3 == 0) printf \"e%d\\n\", i > \"/dev/stderr\"; fflush() } }'";
  Launched launched(
      {.words = {"/bin/sh", "-c", text("exec 2>&1; exec ", horo_program(), " run -np 4 /bin/sh -c \"$0\""), script},
       .variables = {"LC_ALL=C", "OMP_NUM_THREADS=1"}});
  ASSERT_EQ(launched.wait(), 0) << launched.err();
  size_t out_lines = 0, err_lines = 0;
  for (const std::string& line : lines_of(launched.out())) {
    ASSERT_GE(line.size(), 12u) << line;
    const int rank = line[1] - '0';
    const std::string prefix = text("[", rank, "]<stdout>:");
    if (line.starts_with(text("[", rank, "]<stderr>:e"))) {
      ++err_lines;
      continue;
    }
    ASSERT_TRUE(line.starts_with(prefix)) << line.substr(0, 100);
    const size_t mark = line.find("\001\377");
    ASSERT_NE(mark, line.npos) << line.substr(0, 100);
    const std::string body = line.substr(prefix.size(), mark - prefix.size());
    ASSERT_EQ(body, std::string(body.size(), static_cast<char>('a' + rank)));
    ASSERT_EQ(line.substr(mark + 2), text(body.size()));
    ++out_lines;
  }
  EXPECT_EQ(out_lines, 1600u);
  EXPECT_EQ(err_lines, 4u * 134u);
}

}  // namespace
}  // namespace horo::test
