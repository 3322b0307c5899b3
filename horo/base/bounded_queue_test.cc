#include "horo/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace horo {
namespace {

TEST(BoundedQueue, ReturnsWhatCameInOrderAndRefusesWhatDoesNotFit) {
  BoundedQueue<std::string> queue(3);  // 4 in truth.
  std::string out;
  EXPECT_FALSE(queue.pop(out));
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) {
      std::string value = std::to_string(i);
      EXPECT_TRUE(queue.push(value));
    }
    std::string surplus = "surplus";
    EXPECT_FALSE(queue.push(surplus));
    EXPECT_EQ(surplus, "surplus") << "what is refused stays the caller's";
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(queue.pop(out));
      EXPECT_EQ(out, std::to_string(i));
    }
    EXPECT_FALSE(queue.pop(out));
  }
}

TEST(BoundedQueue, ThreadsLoseNothingAndEachKeepsItsOrder) {
  constexpr uint64_t kThreads = 4, kEach = 20'000;
  BoundedQueue<uint64_t> queue(64);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        uint64_t value = t * kEach + i;
        while (!queue.push(value)) std::this_thread::yield();
      }
    });
  }
  std::vector<uint64_t> next(kThreads, 0);
  for (uint64_t taken = 0; taken < kThreads * kEach;) {
    uint64_t value = 0;
    if (!queue.pop(value)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(value % kEach, next[value / kEach]++);
    ++taken;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace horo
