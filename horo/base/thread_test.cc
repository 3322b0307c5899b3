#include "horo/base/thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <condition_variable>
#include <future>
#include <mutex>

namespace horo {
namespace {

// Returns once a stop was requested.
void wait_for_stop(const std::stop_token& token) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, token, [] { return false; });
}

TEST(Thread, RunsItsBodyUnderItsName) {
  std::promise<std::string> name;
  auto thread = Thread::start("horo-engine", [&](const std::stop_token&) {
    std::array<char, 32> buffer{};
    pthread_getname_np(pthread_self(), buffer.data(), buffer.size());
    name.set_value(buffer.data());
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  EXPECT_EQ(name.get_future().get(), "horo-engine");
}

TEST(Thread, ALongNameIsCutNotRefused) {
  std::promise<std::string> name;
  auto thread = Thread::start("horo-engine-of-group-17", [&](const std::stop_token&) {
    std::array<char, 32> buffer{};
    pthread_getname_np(pthread_self(), buffer.data(), buffer.size());
    name.set_value(buffer.data());
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  EXPECT_EQ(name.get_future().get(), "horo-engine-of-");
}

TEST(Thread, BlocksAllSignalsButItsOwnFaultsAndLeavesTheCallersMaskAlone) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  std::promise<sigset_t> mask;
  auto thread = Thread::start("horo-test", [&](const std::stop_token&) {
    sigset_t inside;
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    mask.set_value(inside);
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  sigset_t inside = mask.get_future().get();
  for (int blocked : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGPROF}) {
    EXPECT_EQ(sigismember(&inside, blocked), 1) << strsignal(blocked);
  }
  for (int open : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) EXPECT_EQ(sigismember(&inside, open), 0) << strsignal(open);

  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < 32; ++number) EXPECT_EQ(sigismember(&before, number), sigismember(&after, number));
}

TEST(Thread, TheDestructorStopsAndJoins) {
  bool ended = false;
  {
    auto thread = Thread::start("horo-test", [&](const std::stop_token& token) {
      wait_for_stop(token);
      ended = true;
    });
    ASSERT_TRUE(thread.ok()) << thread.status();
    EXPECT_TRUE(thread->joinable());
  }
  EXPECT_TRUE(ended);
}

TEST(Thread, AssigningOverARunningThreadStopsItFirst) {
  bool ended = false;
  auto first = Thread::start("horo-first", [&](const std::stop_token& token) {
    wait_for_stop(token);
    ended = true;
  });
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Thread::start("horo-second", wait_for_stop);
  ASSERT_TRUE(second.ok()) << second.status();
  *first = *std::move(second);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(first->joinable());
}

TEST(Thread, AnEmptyHandleCanBeStoppedAndJoined) {
  Thread thread;
  EXPECT_FALSE(thread.joinable());
  thread.request_stop();
  thread.join();
}

}  // namespace
}  // namespace horo
