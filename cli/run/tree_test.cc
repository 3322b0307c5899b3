#include "cli/run/tree.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace horo::cli::launch {
namespace {

TEST(ProcessTree, ReadsNamesWithParentheses) {
  const auto facts = parse_stat("12 (a) b (c)) S 7 12 12 0 -1 ...");
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->pid, 12);
  EXPECT_EQ(facts->parent, 7);
  EXPECT_EQ(facts->state, 'S');
  EXPECT_FALSE(parse_stat(""));
  EXPECT_FALSE(parse_stat("12 (x)"));
  EXPECT_FALSE(parse_stat("x (x) S 7"));
}

TEST(ProcessTree, FindsGrandchildrenInAnyOrder) {
  const std::vector<ProcessFacts> all{{9, 5, 'S'}, {5, 3, 'S'}, {3, 2, 'S'}, {4, 2, 'S'}, {2, 1, 'S'}, {7, 1, 'S'}};
  std::vector<pid_t> found;
  for (const auto& process : descendants(all, 2)) found.push_back(process.pid);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<pid_t>{3, 4, 5, 9}));
  EXPECT_TRUE(descendants(all, 9).empty());
}

/// Waits for the end of any child; 0 when there is none.
pid_t reap() { return std::max(waitpid(-1, nullptr, 0), 0); }

TEST(ProcessTree, SignalsChildrenAndTheirChildren) {
  // In a process of its own: the signals go to all that it started.
  const pid_t root = fork();
  if (root == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t child = fork();
    if (child == 0) {
      if (fork() == 0) setsid();
      while (true) pause();
    }
    while (descendants(running_processes(), getpid()).size() < 2) {
    }
    const bool two = signal_descendants(SIGKILL) == 2;
    const bool gone = reap() > 0 && reap() > 0 && reap() == 0;
    _exit(two && gone ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(root, &status, 0), root);
  EXPECT_EQ(status, 0);
}

TEST(ProcessTree, ProcessesMayEndWhileTheyAreLookedAt) {
  std::atomic<bool> ended{false};
  std::thread looking([&] {
    while (!ended) EXPECT_FALSE(running_processes().empty());
  });
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<pid_t> children;
    for (int i = 0; i < 64; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) pause();
      }
      EXPECT_GT(child, 0);
      if (child > 0) children.push_back(child);  // A signal to -1 would reach everybody.
    }
    for (pid_t child : children) {
      kill(child, SIGKILL);
      EXPECT_EQ(waitpid(child, nullptr, 0), child);
    }
  }
  ended = true;
  looking.join();
}

}  // namespace
}  // namespace horo::cli::launch
