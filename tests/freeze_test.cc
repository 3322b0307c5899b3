// Ranks that are stopped, late or idle: who is named, who is given up, who is fenced, and what waiting costs.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "tests/job.h"
#include "tests/process.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;
using std::chrono::milliseconds;

constexpr int kVictim = 1;

JobOptions options_over(const std::string& transport) {
  JobOptions options{.ranks = 4, .environment = {{"HORO_FREEZE_TIMEOUT", "1s"}, {"HORO_INTERFACE", "127.0.0.1"}}};
  options.environment["HORO_TRANSPORT"] = transport;
  return options;
}

/// Sums a number from every rank.
Status sum_of(group::Group& group, uint64_t& value) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  return group.run(operation, bytes, bytes);
}

/// Reduces until rank 0 has seen the end of `hold`.
Status reduce_until(group::Engine& engine, Hold& hold) {
  while (true) {
    uint64_t value = engine.rank() == 0 && hold.wait(Deadline::after(milliseconds(0))) ? 1 : 0;
    if (Status status = sum_of(engine.world(), value); !status.ok()) return status;
    if (value == 1) return {};
  }
}

double seconds_since(Time time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

/// Lines of `rank` until one has `words` in it; that one, or the error with everything that was read.
Result<std::string> line_with(Job& job, int rank, const std::string& words, Deadline deadline) {
  std::string others;
  while (true) {
    auto line = job.next_line(rank, deadline);
    if (!line.ok()) return line.status().prefixed(text("no line with \"", words, "\" among: ", others));
    if (line->find(words) != std::string::npos) return line;
    others += *line + "\n";
  }
}

void expect_ready(Job& job) {
  for (int rank = 0; rank < 4; ++rank) {
    auto line = line_with(job, rank, "ready", Deadline::after_seconds(20));
    ASSERT_TRUE(line.ok()) << line.status();
  }
}

int survive_and_go_on(group::Engine& engine, Hold& hold) {
  hold.take_part();
  tell_log();
  tell("ready\n");
  Status status = reduce_until(engine, hold);
  tell(text("ended ", status.to_string(), "\n"));
  if (engine.rank() == kVictim) return status.code() == Code::kEvicted ? 0 : 4;
  if (status.code() != Code::kPeerLost || status.lost() != std::vector<int>{kVictim}) return 5;
  auto group = engine.create_group({0, 2, 3}, Deadline::after_seconds(10));
  if (!group.ok()) return 6;
  uint64_t value = 1;
  if (!sum_of(**group, value).ok() || value != 3) return 7;
  tell("goes on\n");
  return hold.wait(Deadline::after_seconds(30)) ? 0 : 8;
}

class Freeze : public testing::TestWithParam<const char*> {};

TEST_P(Freeze, AStoppedRankIsNamedGivenUpAtTheLimitAndFencedWhenItWakes) {
  Hold hold;
  auto started =
      Job::start(options_over(GetParam()), [&](group::Engine& engine) { return survive_and_go_on(engine, hold); });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  expect_ready(job);
  const Time stopped = Clock::now();
  job.signal(kVictim, SIGSTOP);
  // Whoever waits for it names it; nobody can give it up before.
  double went_on = 0;
  for (int rank : {0, 2, 3}) {
    auto line = line_with(job, rank, "ended peer-lost", Deadline::after_seconds(10));
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_NE(line->find("frozen"), std::string::npos) << *line;
    EXPECT_GE(seconds_since(stopped), 1.0) << "given up before the limit";
    auto on = line_with(job, rank, "goes on", Deadline::after_seconds(10));
    EXPECT_TRUE(on.ok()) << on.status();
    went_on = seconds_since(stopped);
  }
  std::printf("  %s: the survivors go on %.2f s after SIGSTOP, with a limit of 1 s\n", GetParam(), went_on);
  job.signal(kVictim, SIGCONT);
  auto fenced = line_with(job, kVictim, "ended", Deadline::after_seconds(10));
  ASSERT_TRUE(fenced.ok()) << fenced.status();
  EXPECT_NE(fenced->find("evicted"), std::string::npos) << *fenced;
  EXPECT_NE(fenced->find("went on without"), std::string::npos) << *fenced;
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(10));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(4, 0));
}

TEST_P(Freeze, AStoppedRankIsNamedInTheLogWithinASecond) {
  Hold hold;
  auto started =
      Job::start(options_over(GetParam()), [&](group::Engine& engine) { return survive_and_go_on(engine, hold); });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  expect_ready(job);
  const Time stopped = Clock::now();
  job.signal(kVictim, SIGSTOP);
  double first = 10;
  for (int rank : {0, 2, 3}) {
    auto line = line_with(job, rank, text("rank ", kVictim, " has not answered"), Deadline::after_seconds(5));
    if (line.ok()) first = std::min(first, seconds_since(stopped));
    if (line.ok()) break;
  }
  std::printf("  %s: named %.2f s after SIGSTOP\n", GetParam(), first);
  EXPECT_LE(first, 1.0);
}

TEST_P(Freeze, ARankStoppedForLessThanTheLimitIsNotLost) {
  Hold hold;
  auto started = Job::start(options_over(GetParam()), [&](group::Engine& engine) {
    hold.take_part();
    tell("ready\n");
    Status status = reduce_until(engine, hold);
    tell(text("ended ", status.to_string(), "\n"));
    return status.ok() ? 0 : 4;
  });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  expect_ready(job);
  for (int rank : {1, 3}) {
    job.signal(rank, SIGSTOP);
    auto early = job.next_line(0, Deadline::after(milliseconds(600)));  // Says nothing while it waits.
    EXPECT_EQ(early.status().code(), Code::kTimeout) << *early;
    job.signal(rank, SIGCONT);
  }
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(10));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << job.told(rank);
}

TEST_P(Freeze, AnIdleJobSendsNothing) {
  if (sanitized()) GTEST_SKIP() << "the sanitizers have threads that wake up";
  Hold hold;
  auto started = Job::start(options_over(GetParam()), [&](group::Engine& engine) {
    hold.take_part();
    uint64_t value = 0;
    if (!sum_of(engine.world(), value).ok()) return 4;
    tell("ready\n");
    return hold.wait(Deadline::after_seconds(30)) ? 0 : 8;
  });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  expect_ready(job);
  // What a rank does after it has told that it is ready ends soon; then nothing more may happen.
  EXPECT_EQ(job.next_line(0, Deadline::after(milliseconds(300))).status().code(), Code::kTimeout);
  std::vector<Use> before;
  for (int rank = 0; rank < 4; ++rank) before.push_back(use_of(job.pid(rank)));
  EXPECT_EQ(job.next_line(0, Deadline::after(milliseconds(1000))).status().code(), Code::kTimeout);
  for (int rank = 0; rank < 4; ++rank) {
    const Use after = use_of(job.pid(rank));
    EXPECT_LE(after.cpu_ms - before[static_cast<size_t>(rank)].cpu_ms, 1.0) << "rank " << rank;
    EXPECT_EQ(after.switches - before[static_cast<size_t>(rank)].switches, 0) << "rank " << rank << " woke up";
  }
  hold.let_go();
  EXPECT_TRUE(job.wait(Deadline::after_seconds(10)).ok());
}

TEST_P(Freeze, WaitingForALatePeerBurnsNoCore) {
  Hold hold;
  auto started = Job::start(options_over(GetParam()), [&](group::Engine& engine) {
    hold.take_part();
    tell("ready\n");
    if (engine.rank() == 0 && !hold.wait(Deadline::after_seconds(30)))
      return 8;  // Late, but its control thread answers.
    uint64_t value = 1;
    return sum_of(engine.world(), value).ok() && value == 4 ? 0 : 4;
  });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  expect_ready(job);
  std::vector<Use> before;
  for (int rank = 0; rank < 4; ++rank) before.push_back(use_of(job.pid(rank)));
  EXPECT_EQ(job.next_line(0, Deadline::after(milliseconds(1500))).status().code(), Code::kTimeout);
  for (int rank = 0; rank < 4; ++rank) {
    const double used = use_of(job.pid(rank)).cpu_ms - before[static_cast<size_t>(rank)].cpu_ms;
    std::printf("  %s: rank %d used %.2f ms of 1500 ms\n", GetParam(), rank, used);
    EXPECT_LE(used, 75) << "rank " << rank << " burns more than 5 % of a core";
  }
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(10));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(4, 0)) << "a peer that is late but answers must not be given up";
}

INSTANTIATE_TEST_SUITE_P(Transports, Freeze, testing::Values("shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace horo::test
