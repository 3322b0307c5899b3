#include "horo/group/bell.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "horo/transport/futex.h"

namespace horo::group {
namespace {

const Deadline kSoon = Deadline::after_seconds(20);

TEST(Bell, AWaitEndsAtOnceWhenItRangSinceTheLook) {
  Bell bell;
  const uint32_t seen = bell.look();
  bell.ring();
  EXPECT_NE(bell.look(), seen);
  EXPECT_TRUE(bell.wait(seen, Deadline::never(), false));
  EXPECT_TRUE(bell.wait(seen, Deadline::never(), true));
}

TEST(Bell, AWaitEndsAtItsDeadline) {
  Bell bell;
  for (bool may_spin : {false, true}) {
    const Time start = Clock::now();
    EXPECT_FALSE(bell.wait(bell.look(), Deadline::after(std::chrono::milliseconds(10)), may_spin));
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(10));
  }
}

// Two threads wake each other in turn. A lost wake-up would leave both asleep.
TEST(Bell, NoRingIsLostBetweenTwoThatTakeTurns) {
  constexpr int kTurns = 20'000;
  for (bool may_spin : {false, true}) {
    Bell bells[2];
    std::atomic<int> turn{0};
    std::atomic<int> late{0};
    const auto play = [&](int self) {
      for (int mine = self; mine < kTurns; mine += 2) {
        while (true) {
          const uint32_t seen = bells[self].look();
          if (turn.load(std::memory_order_relaxed) == mine) break;
          if (!bells[self].wait(seen, Deadline::after_seconds(20), may_spin)) {
            ++late;
            return;
          }
        }
        turn.store(mine + 1, std::memory_order_relaxed);  // The bell alone orders this.
        bells[1 - self].ring();
      }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(late.load(), 0);
    EXPECT_EQ(turn.load(), kTurns);
  }
}

TEST(Bell, NoRingIsLostWithManyRingersAndSeveralSleepers) {
  constexpr int kRingers = 3;
  constexpr int kRings = 5000;
  Bell bell;
  std::atomic<int> rung{0};
  std::atomic<int> late{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (true) {
        const uint32_t seen = bell.look();
        if (rung.load(std::memory_order_relaxed) == kRingers * kRings) return;
        if (!bell.wait(seen, Deadline::after_seconds(20), false)) {
          ++late;
          return;
        }
      }
    });
  }
  for (int i = 0; i < kRingers; ++i) {
    threads.emplace_back([&] {
      for (int ring = 0; ring < kRings; ++ring) {
        rung.fetch_add(1, std::memory_order_relaxed);
        bell.ring();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(late.load(), 0);
}

/// Memory that a forked process shares.
class SharedWord {
 public:
  SharedWord() {
    memory_ = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    new (memory_) BellWord;
  }
  ~SharedWord() { munmap(memory_, 4096); }
  BellWord& get() { return *static_cast<BellWord*>(memory_); }

 private:
  void* memory_;
};

TEST(Bell, AnotherProcessWakesASleeper) {
  SharedWord word;
  Bell bell(word.get());
  const uint32_t seen = bell.look();
  const pid_t child = fork();
  if (child == 0) {
    while (word.get().sleepers.load() == 0) sched_yield();
    word.get().ring();
    _exit(0);
  }
  EXPECT_TRUE(bell.wait(seen, kSoon, false));
  waitpid(child, nullptr, 0);
}

TEST(Bell, RingersThatAreKilledAnywhereKeepNobodyFromBeingWoken) {
  SharedWord word;
  Bell bell(word.get());
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      while (true) word.get().ring();
    }
    ASSERT_GT(child, 0);  // A signal to -1 would reach everybody.
    for (int turn = 0; turn < 50; ++turn) bell.wait(bell.look(), kSoon, false);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const uint32_t seen = bell.look();
    std::thread ringer([&] {
      while (word.get().sleepers.load() == 0) sched_yield();
      bell.ring();
    });
    EXPECT_TRUE(bell.wait(seen, kSoon, false));
    ringer.join();
    EXPECT_EQ(word.get().sleepers.load(), 0u);
  }
}

TEST(Bell, ASleeperIsToldOnceThatAPeerWasKilled) {
  if (!transport::can_wait_for_many()) GTEST_SKIP() << "no futex_waitv here";
  transport::Life life;
  Bell bell;
  std::atomic<int> told{0};
  bell.watch({{&life, 7}}, [&](int rank) {
    told += rank;
    bell.ring();
  });
  std::thread killer([&] { life.end(); });
  const uint32_t seen = bell.look();
  EXPECT_TRUE(bell.wait(seen, kSoon, false));
  EXPECT_EQ(told.load(), 7);
  EXPECT_FALSE(bell.wait(bell.look(), Deadline::after(std::chrono::milliseconds(5)), false));
  EXPECT_EQ(told.load(), 7);
  killer.join();
}

TEST(Bell, APeerThatLeftInOrderIsNobodysDeath) {
  transport::Life life;
  Bell bell;
  bell.watch({{&life, 7}}, [&](int) { FAIL(); });
  life.announce_leaving();
  life.end();
  EXPECT_FALSE(bell.wait(bell.look(), Deadline::after(std::chrono::milliseconds(5)), false));
}

}  // namespace
}  // namespace horo::group
