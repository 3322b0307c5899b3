#include "horo/net/poller.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <thread>

#include "horo/net/socket.h"
#include "horo/net/testing.h"
#include "horo/net/wake.h"

namespace horo::net {
namespace {

using testing::bytes_of;
using testing::soon;

TEST(Wake, EndsAWaitOfAnotherThread) {
  auto wake = Wake::create();
  auto poller = Poller::create();
  ASSERT_TRUE(poller->add(wake->fd(), Interest::kRead, 42).ok());
  std::thread other([&] { wake->signal(); });
  auto events = poller->wait(soon());
  other.join();
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->front().token, 42u);
  EXPECT_TRUE(events->front().readable);
  wake->signal();
  EXPECT_TRUE(wake->drain());
  EXPECT_FALSE(wake->drain());
  EXPECT_TRUE(poller->wait(Deadline::after_seconds(0))->empty());
}

TEST(Poller, ReportsOnlyWhatIsWanted) {
  auto [a, b] = *Socket::pair();
  auto poller = Poller::create();
  ASSERT_TRUE(poller->add(a.fd(), Interest::kRead, 1).ok());
  EXPECT_TRUE(poller->wait(Deadline::after_seconds(0))->empty());
  ASSERT_TRUE(poller->modify(a.fd(), Interest::kReadWrite, 2).ok());
  auto events = poller->wait(soon());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_TRUE(events->front().writable && !events->front().readable && !events->front().hung_up);
  EXPECT_EQ(events->front().token, 2u);
  ASSERT_TRUE(poller->modify(a.fd(), Interest::kRead, 3).ok());
  b.close();
  events = poller->wait(soon());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_TRUE(events->front().readable && events->front().hung_up);
  ASSERT_TRUE(poller->remove(a.fd()).ok());
  EXPECT_TRUE(poller->wait(Deadline::after_seconds(0))->empty());
  EXPECT_FALSE(poller->remove(a.fd()).ok());
}

TEST(Poller, WaitsUntilItsDeadlineAndNotLess) {
  auto poller = Poller::create();
  Time start = Clock::now();
  EXPECT_TRUE(poller->wait(Deadline::after(std::chrono::milliseconds(20)))->empty());
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(20));
}

TEST(PollMany, TellsWhichOfAFewAreReady) {
  auto [a, b] = *Socket::pair();
  auto [c, d] = *Socket::pair();
  std::array<PollItem, 3> items = {PollItem{a.fd()}, PollItem{-1}, PollItem{c.fd()}};
  EXPECT_EQ(*poll_many(items, Deadline::after_seconds(0)), 0u);
  ASSERT_TRUE(d.send(bytes_of("x")).is_moved());
  EXPECT_EQ(*poll_many(items, soon()), 1u);
  EXPECT_TRUE(!items[0].readable && items[2].readable && !items[2].writable && !items[2].hung_up);
  b.close();
  EXPECT_EQ(*poll_many(items, soon()), 2u);
  EXPECT_TRUE(items[0].readable && items[0].hung_up);
  EXPECT_EQ(wait_ready(c.fd(), Interest::kRead, soon(), "x").code(), Code::kOk);
  std::array<std::byte, 1> got;
  ASSERT_TRUE(c.receive(got).is_moved());
  EXPECT_EQ(wait_ready(c.fd(), Interest::kRead, Deadline::after_seconds(0.001), "x").code(), Code::kTimeout);
}

TEST(PollMany, ReturnsOnASignalOnlyWhenAsked) {
  struct sigaction action {
  }, saved{};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR2, &action, &saved);
  std::atomic<bool> done = false;
  Code code = Code::kOk;
  std::thread waiter([&] {
    auto result = poll_many({}, soon(), OnSignal::kReturn);
    code = result.status().code();
    done = true;
  });
  // The signal may come before the wait: repeat until one interrupts it.
  while (!done) {
    pthread_kill(waiter.native_handle(), SIGUSR2);
    std::this_thread::yield();
  }
  waiter.join();
  sigaction(SIGUSR2, &saved, nullptr);
  EXPECT_EQ(code, Code::kInterrupted);
}

}  // namespace
}  // namespace horo::net
