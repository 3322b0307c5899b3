#include "horo/engine/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <thread>

namespace horo::engine {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMiB = 1 << 20;

/// Addresses without memory behind them; counts what is taken.
class Source {
 public:
  BufferSource functions() {
    return {.allocate = [this](uint64_t bytes) -> Result<std::span<std::byte>> { return allocate(bytes); },
            .free = [this](std::byte* memory) { free(memory); },
            .shared = [this](std::span<std::byte> memory) { return memory.data() != lost_; }};
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t highest() const { return highest_; }
  uint64_t allocations() const { return allocations_; }
  void limit(uint64_t bytes) { limit_ = bytes; }
  void lose(const std::byte* memory) { lost_ = memory; }

 private:
  Result<std::span<std::byte>> allocate(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes_ + bytes > limit_) return Status(Code::kUnavailable, "no memory");
    // Never read or written. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* at = reinterpret_cast<std::byte*>(next_ += uint64_t{1} << 32);
    taken_[at] = bytes;
    bytes_ += bytes;
    highest_ = std::max(highest_, bytes_);
    ++allocations_;
    return std::span(at, bytes);
  }
  void free(std::byte* memory) {
    std::lock_guard lock(mutex_);
    ASSERT_TRUE(taken_.contains(memory)) << "freed twice, or never taken";
    bytes_ -= taken_[memory];
    taken_.erase(memory);
  }

  std::mutex mutex_;
  std::map<std::byte*, uint64_t> taken_;
  const std::byte* lost_ = nullptr;
  uint64_t next_ = 0, bytes_ = 0, highest_ = 0, allocations_ = 0, limit_ = UINT64_MAX;
};

struct Fixture {
  Source source;
  int timers = 0;
  BufferPool pool{source.functions(), {.most_idle = 64 * kMiB, .patience = milliseconds(1000)}, [this] { ++timers; }};
  Time now{};

  std::span<std::byte> lend(uint64_t bytes) {
    auto memory = pool.lend(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_GE(memory->size(), bytes);
    return memory.ok() ? *memory : std::span<std::byte>();
  }
};

TEST(BufferPool, LendsTheSameMemoryAgain) {
  Fixture f;
  const auto first = f.lend(3 * kMiB);
  f.pool.take_back(first, f.now);
  EXPECT_EQ(f.lend(2 * kMiB).data(), first.data());
  EXPECT_EQ(f.source.allocations(), 1u);
  EXPECT_NE(f.lend(2 * kMiB).data(), first.data()) << "it is lent";
}

TEST(BufferPool, DoesNotLendAgainWhatPeersNoLongerSee) {
  Fixture f;
  const auto first = f.lend(3 * kMiB);
  f.source.lose(first.data());
  f.pool.take_back(first, f.now);
  EXPECT_EQ(f.source.bytes(), 0u);
  EXPECT_EQ(f.pool.counts().idle, 0u);
  EXPECT_NE(f.lend(3 * kMiB).data(), first.data());
}

TEST(BufferPool, WastesAtMostAFourth) {
  Fixture f;
  for (uint64_t bytes = kMiB; bytes < 300 * kMiB; bytes += 777'777) {
    EXPECT_LE(f.lend(bytes).size(), bytes + bytes / 4) << bytes;
  }
  EXPECT_EQ(f.lend(0).size(), kMiB);
}

TEST(BufferPool, ALargerBufferTakesThePlaceOfOneThatIsTooSmall) {
  Fixture f;
  for (uint64_t bytes = kMiB; bytes <= 32 * kMiB; bytes *= 2) f.pool.take_back(f.lend(bytes), f.now);
  EXPECT_EQ(f.pool.counts().idle, 1u);
  EXPECT_EQ(f.source.bytes(), 32 * kMiB);
}

TEST(BufferPool, WhatIsNotUsedForLongIsFreedAndNothingIsTimedAfterwards) {
  Fixture f;
  EXPECT_TRUE(f.pool.trim(f.now).is_never());
  f.pool.take_back(f.lend(kMiB), f.now);
  EXPECT_EQ(f.timers, 1);
  EXPECT_EQ(f.pool.trim(f.now + milliseconds(400)).at(), f.now + milliseconds(1000));
  f.pool.take_back(f.lend(kMiB), f.now + milliseconds(500));
  EXPECT_EQ(f.timers, 1) << "the timer runs";
  EXPECT_EQ(f.pool.trim(f.now + milliseconds(1000)).at(), f.now + milliseconds(1500));
  EXPECT_EQ(f.source.bytes(), kMiB);
  EXPECT_TRUE(f.pool.trim(f.now + milliseconds(1500)).is_never());
  EXPECT_EQ(f.source.bytes(), 0u);
  f.pool.take_back(f.lend(kMiB), f.now + milliseconds(3000));
  EXPECT_EQ(f.timers, 2) << "whoever sleeps must hear that there is something again";
}

TEST(BufferPool, LargeBuffersThatOnlySmallOnesAreAskedForGrowOld) {
  Fixture f;
  const auto large = f.lend(32 * kMiB), small = f.lend(kMiB);
  f.pool.take_back(large, f.now);
  f.pool.take_back(small, f.now);
  for (int step = 0; step < 20; ++step) {
    f.now += milliseconds(100);
    f.pool.take_back(f.lend(1000), f.now);
    (void)f.pool.trim(f.now);
  }
  EXPECT_EQ(f.source.bytes(), kMiB);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  Fixture f;
  std::vector<std::span<std::byte>> lent;
  for (int i = 0; i < 10; ++i) lent.push_back(f.lend(20 * kMiB));
  for (auto memory : lent) f.pool.take_back(memory, f.now);
  EXPECT_LE(f.pool.counts().idle_bytes, 64 * kMiB);
  EXPECT_EQ(f.source.bytes(), f.pool.counts().idle_bytes);
  f.pool.take_back(f.lend(500 * kMiB), f.now);
  EXPECT_LE(f.source.bytes(), 64 * kMiB) << "one that is larger than all that may be kept goes at once";
}

TEST(BufferPool, WhatIsIdleMakesRoomWhereMemoryIsShort) {
  Fixture f;
  f.source.limit(40 * kMiB);
  const auto one = f.lend(10 * kMiB), other = f.lend(10 * kMiB);
  f.pool.take_back(one, f.now);
  f.pool.take_back(other, f.now);
  f.pool.take_back(f.lend(40 * kMiB), f.now);
  EXPECT_EQ(f.pool.lend(41 * kMiB).status().code(), Code::kUnavailable);
  EXPECT_EQ(f.pool.counts().lent, 0u);
}

TEST(BufferPool, DoesNotGrowInAMillionTurns) {
  Fixture f;
  std::mt19937_64 random(5);
  std::deque<std::span<std::byte>> lent;
  for (int turn = 0; turn < 1'000'000; ++turn) {
    f.now += milliseconds(random() % 3);
    if (lent.size() < 4 && random() % 2 == 0) lent.push_back(f.lend(random() % (16 * kMiB)));
    if (!lent.empty() && random() % 2 == 0) {
      f.pool.take_back(lent.front(), f.now);
      lent.pop_front();
    }
    if (turn % 1000 == 0) (void)f.pool.trim(f.now);
    ASSERT_LE(f.pool.counts().idle + f.pool.counts().lent, 4u);
  }
  EXPECT_LE(f.source.highest(), 4 * 20 * kMiB);
  for (auto memory : lent) f.pool.take_back(memory, f.now);
  EXPECT_TRUE(f.pool.trim(f.now + milliseconds(1000)).is_never());
  EXPECT_EQ(f.source.bytes(), 0u);
}

TEST(BufferPool, SeveralThreadsBorrowAtOnce) {
  Fixture f;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&f, seed] {
      std::mt19937 random(seed);
      PooledScratch scratch(f.pool);
      for (int turn = 0; turn < 5000; ++turn) {
        for (int slot = 0; slot < 2; ++slot) {
          auto memory = scratch.get(slot, random() % (8 * kMiB));
          ASSERT_TRUE(memory.ok());
        }
        scratch.give_back();
        if (turn % 100 == 0) (void)f.pool.trim(Clock::now());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.pool.counts().lent, 0u);
  EXPECT_LE(f.pool.counts().idle, 8u);
}

TEST(PooledScratch, ASlotStaysUntilItIsGivenBackOrMustGrow) {
  Fixture f;
  PooledScratch scratch(f.pool);
  const auto first = *scratch.get(0, 1000);
  EXPECT_EQ(scratch.get(0, 2000)->data(), first.data());
  EXPECT_NE(scratch.get(1, 1000)->data(), first.data());
  EXPECT_GE(scratch.get(0, 5 * kMiB)->size(), 5 * kMiB);
  EXPECT_EQ(f.pool.counts().lent, 2u);
  scratch.give_back();
  EXPECT_EQ(f.pool.counts().lent, 0u);
}

}  // namespace
}  // namespace horo::engine
