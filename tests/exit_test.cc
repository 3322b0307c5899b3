// Ways to leave a job with work in flight: the others hear of it soon, and nobody crashes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/job.h"
#include "tests/workload.h"

#include "horo/base/failpoint.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

constexpr int kLeaver = 2;

enum class Way : uint8_t { kUnderscoreExit, kExit, kExitOfAThread, kReturn, kShutdown };
constexpr Way kWays[] = {Way::kUnderscoreExit, Way::kExit, Way::kExitOfAThread, Way::kReturn, Way::kShutdown};
const char* const kWayNames[] = {"_exit", "exit", "exit of another thread", "return", "shutdown"};

/// Outlives the body, as memory of a program that is about to end does.
std::vector<uint64_t>& buffer() {
  static auto* values = new std::vector<uint64_t>(300'000, 1);
  return *values;
}

int leave(group::Engine& engine, Way way, uint64_t count) {
  auto* bytes = reinterpret_cast<std::byte*>(buffer().data());
  std::vector<group::RequestHandle> requests;
  for (int i = 0; i < 3; ++i) {
    auto request = engine.world().submit(sum_of(count), bytes, bytes);
    if (!request.ok()) return 4;
    requests.push_back(*request);
  }
  tell(text("leaves ", Clock::now().time_since_epoch().count(), "\n"));
  switch (way) {
    case Way::kUnderscoreExit:
      _exit(0);
    case Way::kExit:
      std::exit(0);
    case Way::kExitOfAThread:
      std::thread([] { std::exit(0); }).join();
      return 5;
    case Way::kReturn:
      return 0;
    case Way::kShutdown:
      break;
  }
  engine.shutdown();
  for (const auto& request : requests) {
    const Status status = request->wait(Deadline::after_seconds(2));
    if (!status.ok() && status.code() != Code::kStopped) return 6;
  }
  return engine.world().run(sum_of(1), bytes, bytes).code() == Code::kStopped ? 0 : 7;
}

int be_left(group::Engine& engine, uint64_t count) {
  std::vector<uint64_t> values(count, 1);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  // What the leaver has given completely may still succeed.
  for (int i = 0; i < 5; ++i) {
    const Status status = engine.world().run(sum_of(count), bytes, bytes);
    if (status.ok()) continue;
    tell(text("failed ", Clock::now().time_since_epoch().count(), " ", status.to_string(), "\n"));
    if (status.code() != Code::kPeerLost || status.lost() != std::vector<int>{kLeaver}) return 5;
    auto rest = engine.create_group({0, 1, 3}, Deadline::after_seconds(10));
    if (!rest.ok()) return 6;
    std::fill(values.begin(), values.end(), 1);
    return (*rest)->run(sum_of(count), bytes, bytes).ok() && values[0] == 3 && values.back() == 3 ? 0 : 7;
  }
  return 8;
}

void leave_by(Way way, const char* transport, uint64_t count) {
  SCOPED_TRACE(text(kWayNames[static_cast<int>(way)], " over ", transport, ", ", count, " elements"));
  Hold hold;
  JobOptions options{.ranks = 4, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
  auto started = Job::start(options, [&](group::Engine& engine) {
    hold.take_part();
    uint64_t value = 1;
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    if (!engine.world().run(sum_of(1), bytes, bytes).ok()) return 3;
    tell("one\n");
    if (engine.rank() != kLeaver) return be_left(engine, count);
    return hold.wait(Deadline::after_seconds(20)) ? leave(engine, way, count) : 9;
  });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  // The leaver has its first result; the others may still be about to get theirs.
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(job.next_line(rank, Deadline::after_seconds(20)).ok());
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(20));
  ASSERT_TRUE(codes.ok()) << codes.status();
  int64_t left = 0;
  const std::string words = job.told(kLeaver);
  ASSERT_EQ(std::sscanf(words.c_str(), "leaves %ld", &left), 1) << words;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string told = rank == kLeaver ? words : job.told(rank);
    EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << "rank " << rank << ": " << told;
    int64_t failed = 0;
    if (rank == kLeaver) continue;
    ASSERT_EQ(std::sscanf(told.c_str(), "failed %ld", &failed), 1) << told;
    EXPECT_LE(static_cast<double>(failed - left) / 1e9, 2.0) << "rank " << rank << " heard of it late: " << told;
  }
}

TEST(Exit, WithWorkInFlightInSharedMemory) {
  for (Way way : kWays) {
    for (uint64_t count : {1, 300'000}) leave_by(way, "shm", count);
  }
}

TEST(Exit, WithWorkInFlightOverSockets) {
  for (Way way : kWays) {
    for (uint64_t count : {1, 300'000}) leave_by(way, "tcp", count);
  }
}

#ifdef HORO_FAILPOINTS
// The leaver's operation has succeeded everywhere, but its thread notes that only when the engine has stopped already.
TEST(Exit, WhoLeavesWhileItsOperationEndsIsMissedAsARank) {
  Hold hold;
  JobOptions options{.ranks = 4, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", "tcp"}}};
  auto started = Job::start(options, [&](group::Engine& engine) {
    hold.take_part();
    if (engine.rank() != kLeaver) {
      uint64_t value = 1;
      auto* bytes = reinterpret_cast<std::byte*>(&value);
      if (!engine.world().run(sum_of(1), bytes, bytes).ok()) return 3;
      tell("one\n");
      return be_left(engine, 1);
    }
    if (!arm_failpoints("operation.held=delay:300ms;shutdown.stopped=delay:600ms").ok()) return 3;
    auto* bytes = reinterpret_cast<std::byte*>(buffer().data());
    auto request = engine.world().submit(sum_of(1), bytes, bytes);
    if (!request.ok() || !hold.wait(Deadline::after_seconds(20))) return 4;
    engine.shutdown();
    return (*request)->wait(Deadline::after_seconds(2)).ok() ? 0 : 6;
  });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  for (int rank : {0, 1, 3}) ASSERT_TRUE(job.next_line(rank, Deadline::after_seconds(20)).ok());
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(20));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << job.told(rank);
}
#endif

TEST(Exit, AnEngineShutsDownWithinTwoSecondsWhileItsPeersAreStopped) {
  for (const char* transport : {"shm", "tcp"}) {
    Hold hold;
    JobOptions options{.ranks = 3, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
    auto started = Job::start(options, [&](group::Engine& engine) {
      hold.take_part();
      tell("ready\n");
      if (!hold.wait(Deadline::after_seconds(30))) return 3;
      const Time before = Clock::now();
      engine.shutdown();
      return Clock::now() - before < std::chrono::seconds(2) ? 0 : 4;
    });
    ASSERT_TRUE(started.ok()) << started.status();
    Job& job = **started;
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(job.next_line(rank, Deadline::after_seconds(20)).ok());
    job.signal(1, SIGSTOP);
    job.signal(2, SIGSTOP);
    hold.let_go();
    EXPECT_EQ(job.next_line(0, Deadline::after_seconds(5)).status().code(), Code::kStopped) << "rank 0 still runs";
    job.signal(1, SIGCONT);
    job.signal(2, SIGCONT);
    auto codes = job.wait(Deadline::after_seconds(20));
    ASSERT_TRUE(codes.ok()) << codes.status();
    EXPECT_EQ(*codes, std::vector<int>(3, 0)) << transport;
  }
}

}  // namespace
}  // namespace horo::test
