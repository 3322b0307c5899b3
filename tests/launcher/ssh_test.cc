// `horo run` between hosts: network namespaces with a real sshd on each. Needs root, ip and openssh-server.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/launcher/ssh_hosts.h"

#include "horo/base/config.h"
#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

class SshRun : public testing::Test {
 protected:
  void make_hosts(int count) {
    std::string why;
    hosts_ = SshHosts::create(count, why);
    if (!hosts_) GTEST_SKIP() << why;
  }

  /// `horo run` on host 0.
  std::unique_ptr<Launched> start(std::vector<std::string> words, std::vector<std::string> variables = {},
                                  const std::string& ssh_options = "") {
    words.insert(words.begin(), {horo_program(), "run", "--ssh-command", hosts_->ssh_command() + ssh_options});
    return std::make_unique<Launched>(
        Launched::Options{.words = std::move(words), .variables = std::move(variables), .network = hosts_->network(0)});
  }
  Outcome run(std::vector<std::string> words, std::vector<std::string> variables = {}) {
    const auto launched = start(std::move(words), std::move(variables));
    const auto code = launched->wait(Deadline::after_seconds(60));
    return {code.value_or(-1), launched->out(), launched->err()};
  }

  std::unique_ptr<SshHosts> hosts_;
};

/// With a Python that has the package.
class SshPython : public SshRun {
 protected:
  void SetUp() override {
    const auto python = Environment::of_process().find("TEST_PYTHON");
    if (!python) GTEST_SKIP() << "TEST_PYTHON names no Python that has the package (tools/test.py does)";
    python_ = *python;
  }

  std::string python_;
};

#define MAKE_HOSTS(count) \
  make_hosts(count);      \
  if (!hosts_) return

TEST_F(SshRun, ThreeHostsMeetOverTcpAndShareMemoryInside) {
  MAKE_HOSTS(3);
  const Outcome outcome = run(
      {"-np", "5", "-H", text(SshHosts::ipv4(0), ":2,host-1:2,", SshHosts::ipv4(2), ":2"), test_program("barrier")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_TRUE(contains(
        outcome.out, text("rank ", rank, " of 5, local ", rank % 2, " of ", rank < 4 ? 2 : 1, ", over shm+tcp, sum 5")))
        << outcome.out << outcome.err;
  }
}

TEST_F(SshRun, WorksOverIpv6) {
  MAKE_HOSTS(2);
  const Outcome outcome = run({"-H", text("[", SshHosts::ipv6(0), "]:1,[", SshHosts::ipv6(1), "]:1"), "/bin/sh", "-c",
                               text("echo at $HORO_INTERFACE, store $HORO_STORE; exec ", test_program("barrier"))});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "[1]<stdout>:at fd78::2, store [fd78::1]:")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "rank 1 of 2, local 0 of 1, over tcp, sum 2")) << outcome.out;
}

TEST_F(SshRun, InterfacesNeedNoCommonNameAndCanBeChosen) {
  MAKE_HOSTS(2);
  // eth0 on one host, eth1 on the other; routing finds both, and so does a list that has one of each.
  const Outcome outcome = run({"-H", "localhost:1,host-1:1", "--network-interfaces", "eth1,eth0", "/bin/sh", "-c",
                               text("echo at $HORO_INTERFACE; exec ", test_program("barrier"))});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "[1]<stdout>:at 10.78.0.2")) << outcome.out;
  const Outcome absent = run({"-H", "localhost:1,host-1:1", "--network-interfaces", "eth0", "true"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_TRUE(contains(absent.err, "none of them is on host")) << absent.err;
  EXPECT_TRUE(contains(absent.err, "eth1 (10.78.0.2)")) << absent.err;
}

TEST_F(SshRun, EachHostSharesItsCoresAndOneLineTellsOfAll) {
  MAKE_HOSTS(3);
  const int cores = System().usable_cores();
  const Outcome outcome =
      run({"-H", "localhost:2,host-1:2,host-2:3", "/bin/sh", "-c", "echo $OMP_NUM_THREADS."}, {"OMP_NUM_THREADS="});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int rank = 0; rank < 7; ++rank) {
    const int threads = std::max(1, cores / (rank < 4 ? 2 : 3));
    EXPECT_TRUE(contains(outcome.out, text("[", rank, "]<stdout>:", threads, ".\n"))) << outcome.out;
  }
  EXPECT_EQ(numbers_behind(outcome.err, "ranks on the host: ").size(), 2u) << outcome.err;
}

TEST_F(SshRun, TheEnvironmentAndFolderTravelAndNothingSecretIsOnACommandLine) {
  MAKE_HOSTS(2);
  const std::string script =
      "echo flag $HOROVOD_CYCLE_TIME$HORO_GATHER_WINDOW mine $MY_VARIABLE in $(pwd); "
      "od -An -tx1 -v < /proc/self/fd/$HORO_KEY_FD | tr -d ' \\n'; echo; "
      "for p in /proc/[0-9]*; do cat $p/cmdline; done 2>/dev/null | od -An -tx1 -v | tr -d ' \\n'; echo";
  const Outcome outcome = run({"-np", "1", "-H", "host-1:1", "--cycle-time-ms", "3", "/bin/sh", "-c", script},
                              {"MY_VARIABLE=it's here", "SSH_AUTH_SOCK=/nowhere"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "[0]<stdout>:flag 3")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, text("mine it's here in ", std::filesystem::current_path().string())))
      << outcome.out;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 3u);
  const std::string key = lines[1].substr(lines[1].find(':') + 1);
  EXPECT_EQ(key.size(), 64u);
  EXPECT_FALSE(contains(lines[2], key));
}

TEST_F(SshRun, InputAndResultsTravelToOtherHosts) {
  MAKE_HOSTS(2);
  const TemporaryFolder folder;
  std::string input;
  for (size_t i = 0; i < 2'500'000; ++i) input += static_cast<char>(i * 7 + i / 253);
  std::filesystem::create_directory(folder.file("back"));
  const Outcome outcome =
      run({"-H", "localhost:1,host-1:1", "--input", folder.write("input", input), "--result-folder",
           folder.file("back"), "/bin/sh", "-c", "cat > /proc/self/fd/$HORO_RESULT_FD; echo read on $HORO_HOSTNAME"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "[1]<stdout>:read on host-1")) << outcome.out;
  for (const char* name : {"back/rank.0", "back/rank.1"}) {
    std::ifstream file(folder.file(name), std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(file), {}) == input) << name;
  }
}

// What a user of horo.run() has is ssh and its configuration; here a program of that name chooses the test's.
TEST_F(SshPython, APythonFunctionRunsOnEveryHost) {
  MAKE_HOSTS(2);
  const TemporaryFolder programs;
  programs.write("ssh", text("#!/bin/sh\nPATH=${PATH#*:} exec ", hosts_->ssh_command(), " \"$@\"\n"), 0755);
  const char* script = R"(
import os
import horo

def work(base, culprit):
    import numpy
    horo.init()
    total = horo.allreduce(numpy.array([base + horo.rank()]), op=horo.Sum, name="total")
    if horo.rank() == culprit:
        raise KeyError("lost the key")
    return horo.rank(), horo.local_size(), os.environ["HORO_HOSTNAME"] == "host-1", int(total[0])

print(horo.run(work, args=(10, -1), num_proc=3, hosts="localhost:1,host-1:2"))
try:
    horo.run(work, args=(10, 1), num_proc=2, hosts="localhost:1,host-1:1")
except KeyError as error:
    print("rank", error.__cause__.rank, "raised", error)
)";
  const std::string path = text("PATH=", programs.path(), ":", Environment::of_process().find("PATH").value_or(""));
  Launched launched({.words = {python_, "-c", script}, .variables = {path}, .network = hosts_->network(0)});
  EXPECT_EQ(launched.wait(Deadline::after_seconds(60)), 0) << launched.err();
  EXPECT_EQ(launched.out(), "[(0, 1, False, 33), (1, 2, True, 33), (2, 2, True, 33)]\nrank 1 raised 'lost the key'\n")
      << launched.err();
}

TEST_F(SshPython, AnElasticJobGrowsToANewHostLosesARankThereAndLeavesAnother) {
  MAKE_HOSTS(3);
  // What is found is written by the job itself, so that each change comes when the one before is there.
  const TemporaryFolder folder;
  const std::string found = folder.write("hosts", "localhost:1\nhost-1:1\n");
  const char* script = R"(
import os, signal
import horo.elastic

horo.init()
host, seat = os.environ["HORO_HOSTNAME"], int(os.environ["HORO_SEAT"])

def find(hosts):
    path = os.environ["FOUND"]
    with open(path + ".new", "w") as file:
        file.write(hosts)
    os.rename(path + ".new", path)

def train(state):
    while state.stage < 4:
        there = horo.allgather_object((host, seat), "there")
        hosts = sorted(name for name, _ in there)
        stage = state.stage
        if stage == 0:
            if horo.rank() == 0:
                find("localhost:1\nhost-1:1\nhost-2:2\n")
            state.stage = 1
        elif stage == 1 and hosts.count("host-2") == 2:
            state.stage, state.victim = 2, max(seat for name, seat in there if name == "host-2")
        elif stage == 2:
            if seat == state.victim:
                os.kill(os.getpid(), signal.SIGKILL)
            if hosts.count("host-2") == 2 and all(seat != state.victim for _, seat in there):
                if horo.rank() == 0:
                    find("localhost:1\nhost-2:2\n")
                state.stage = 3
        elif stage == 3 and "host-1" not in hosts:
            state.stage = 4
        if state.stage != stage and horo.rank() == 0:
            print("stage", state.stage, "with", *hosts, flush=True)
        state.commit()

state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, stage=0, victim=-1)
horo.elastic.run_fn(train)(state)
)";
  const Outcome outcome = run({"-np", "2", "--min-np", "1", "--max-np", "4", "--host-discovery-script", "cat " + found,
                               "--blacklist-cooldown-range", "0.1", "0.2", python_, "-u", "-c", script},
                              {"FOUND=" + found, "OMP_NUM_THREADS=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  for (const char* words : {"stage 1 with host-1 localhost", "stage 2 with host-1 host-2 host-2 localhost",
                            "stage 3 with host-1 host-2 host-2 localhost", "stage 4 with host-2 host-2 localhost"}) {
    EXPECT_TRUE(contains(outcome.out, words)) << words << "\n" << outcome.out << outcome.err;
  }
  EXPECT_TRUE(contains(outcome.err, "on host-2 is lost (signal 9); the job goes on")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "on host-1 has left")) << outcome.err;
  EXPECT_FALSE(contains(outcome.err, "warning")) << outcome.err;
}

TEST_F(SshPython, AnElasticJobGoesOnWithoutAHostThatIsCutOff) {
  MAKE_HOSTS(2);
  const char* script = R"(
import numpy
import horo.elastic

horo.init()

def train(state):
    while horo.size() > 2 or state.steps < 20:
        horo.allreduce(numpy.ones(1000), name="ones")
        state.steps += 1
        if state.steps == 5 and horo.rank() == 0:
            print("trains", flush=True)
        state.commit()

state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, steps=0)
horo.elastic.run_fn(train)(state)
print("ends as", horo.rank(), "of", horo.size(), flush=True)
)";
  // The first value of an option counts: the launcher's own is longer.
  auto launched =
      start({"-H", "localhost:2,host-1:1", "--min-np", "2", python_, "-u", "-c", script},
            {"OMP_NUM_THREADS=1", "HORO_FREEZE_TIMEOUT=2s"}, " -o ServerAliveInterval=1 -o ServerAliveCountMax=2");
  ASSERT_TRUE(launched->wait_for_lines("trains", 1)) << launched->err();
  hosts_->cut(1);
  EXPECT_EQ(launched->wait(Deadline::after_seconds(60)), 0) << launched->out() << launched->err();
  for (int rank : {0, 1}) EXPECT_TRUE(contains(launched->out(), text("ends as ", rank, " of 2"))) << launched->out();
  EXPECT_TRUE(contains(launched->err(), " s and is evicted")) << launched->err();
  EXPECT_TRUE(contains(launched->err(), "host host-1: the connection to its agent broke")) << launched->err();
  EXPECT_TRUE(contains(launched->err(), "its ranks count as lost")) << launched->err();
}

TEST_F(SshRun, AFailingRankElsewhereEndsAllHosts) {
  MAKE_HOSTS(2);
  const Outcome outcome = run({"-H", "localhost:1,host-1:2", "/bin/sh", "-c",
                               "echo pid $$; [ $HORO_RANK = 2 ] && echo broken && exit 9; exec tail -f /dev/null"});
  EXPECT_EQ(outcome.code, 9) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "rank 2 on host-1 failed first: exit code 9")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "[2]<stdout>:broken")) << outcome.err;
  EXPECT_TRUE(all_gone(numbers_behind(outcome.out, "pid "), Deadline::after_seconds(1)));
}

TEST_F(SshRun, AVanishedLauncherEndsAllHosts) {
  MAKE_HOSTS(2);
  for (int number : {SIGINT, SIGKILL}) {
    auto launched = start({"-H", "localhost:1,host-1:1", "--grace-period", "1", "/bin/sh", "-c",
                           "setsid tail -f /dev/null & echo pid $!; echo pid $$; wait"});
    ASSERT_TRUE(launched->wait_for_lines("pid ", 4)) << launched->err();
    const auto pids = numbers_behind(launched->out(), "pid ");
    launched->signal(number);
    EXPECT_EQ(launched->wait(Deadline::after_seconds(15)), 128 + number) << launched->err();
    EXPECT_TRUE(all_gone(pids, Deadline::after_seconds(10))) << "after signal " << number;
  }
}

TEST_F(SshRun, AnUnreachableHostIsNamed) {
  MAKE_HOSTS(1);
  const Outcome outcome = run({"-H", "localhost:1,10.78.0.77:1", "--start-timeout", "10", "true"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(contains(outcome.err, "host 10.78.0.77: cannot be reached through ssh")) << outcome.err;
}

TEST_F(SshRun, AnUnknownHostKeyIsRefused) {
  MAKE_HOSTS(2);
  hosts_->forget_host_keys();
  const Outcome outcome = run({"-H", "host-1:1", "true"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(contains(outcome.err, "Host key verification failed")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "connect once by hand")) << outcome.err;
}

TEST_F(SshRun, ALaunchedRankIsSeenFromAHostThatHasNone) {
  MAKE_HOSTS(3);
  // The launcher's own host takes no part: hosts 1 and 2 find each other.
  const Outcome outcome = run({"-H", "host-1:1,host-2:2", test_program("barrier")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "rank 2 of 3, local 1 of 2, over shm+tcp, sum 3")) << outcome.out;
}

}  // namespace
}  // namespace horo::test
