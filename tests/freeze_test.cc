// Ranks that are stopped, late or idle: who is named, who is given up, who is fenced, and what waiting costs.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <random>
#include <sstream>

#include "tests/job.h"
#include "tests/lanes.h"
#include "tests/process.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;
using std::chrono::milliseconds;

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

/// One freeze: who, over what, and when.
struct Stop {
  uint64_t seed = 0;
  const char* transport = "shm";
  int victim = 1;
  milliseconds after{};

  explicit Stop(uint64_t with_seed) : seed(with_seed) {
    std::mt19937_64 random(seed);
    transport = random() % 2 == 0 ? "shm" : "tcp";
    victim = static_cast<int>(random() % 4);
    after = milliseconds(random() % 20);
  }
};

/// Sums of 16^rank: each digit tells of one member's share.
constexpr uint64_t share_of(int rank) { return uint64_t{1} << (4 * rank); }

int survive_and_go_on(group::Engine& engine, int victim, Hold& hold) {
  hold.take_part();
  tell_log();
  tell("ready\n");
  Status status = reduce_until(engine, hold);
  tell(text("ended ", status.to_string(), "\n"));
  if (engine.rank() == victim) {
    // Whatever it tries from now on is refused.
    uint64_t value = share_of(victim);
    for (int turn = 0; turn < 3; ++turn) {
      if (sum_of(engine.world(), value).code() != Code::kEvicted || value != share_of(victim)) return 9;
    }
    return status.code() == Code::kEvicted ? 0 : 4;
  }
  if (status.code() != Code::kPeerLost || status.lost() != std::vector<int>{victim}) return 5;
  std::vector<int> rest = engine.world().ranks();
  std::erase(rest, victim);
  auto group = engine.create_group(rest, Deadline::after_seconds(10));
  if (!group.ok()) return 6;
  uint64_t expected = 0;
  for (int rank : rest) expected += share_of(rank);
  bool told = false;
  for (uint64_t over = 0; over == 0; told = true) {
    // Until the test has seen the end of the thawed rank: nothing of it may get in.
    uint64_t value = share_of(engine.rank());
    over = engine.rank() == rest[0] && hold.wait(Deadline::after(milliseconds(0))) ? 1 : 0;
    if (!sum_of(**group, value).ok() || value != expected || !sum_of(**group, over).ok()) return 7;
    if (!told) tell("goes on\n");
  }
  return 0;
}

/// "ok TRANSPORT NAMED EVICTED ON" in milliseconds, or what is wrong.
std::string stop_and_thaw(uint64_t seed) {
  const Stop stop(seed);
  const std::string which = text("TEST_SEED=", seed, " TEST_THAWS=1 (", stop.transport, ", rank ", stop.victim, "): ");
  Hold hold;
  auto started = Job::start(options_over(stop.transport),
                            [&](group::Engine& engine) { return survive_and_go_on(engine, stop.victim, hold); });
  if (!started.ok()) return which + started.status().to_string();
  Job& job = **started;
  for (int rank = 0; rank < 4; ++rank) {
    if (auto line = line_with(job, rank, "ready", Deadline::after_seconds(20)); !line.ok()) {
      return which + line.status().to_string();
    }
  }
  (void)job.next_line(stop.victim, Deadline::after(stop.after)).ok();
  const Time stopped = Clock::now();
  job.signal(stop.victim, SIGSTOP);
  double named = 0, evicted = 0, on = 0;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == stop.victim) continue;
    // Whoever waits for it names it, most at once; nobody can give it up before the limit.
    std::string line;
    while (line.find("ended peer-lost") == std::string::npos) {
      auto next = job.next_line(rank, Deadline::after_seconds(20));
      if (!next.ok()) return text(which, "rank ", rank, ": ", next.status().to_string());
      line = *next;
      if (line.find(text("rank ", stop.victim, " has not answered")) != std::string::npos && named == 0) {
        named = seconds_since(stopped) * 1e3;
      }
    }
    evicted = std::max(evicted, seconds_since(stopped) * 1e3);
    if (line.find("frozen") == std::string::npos) return which + line;
    if (auto more = line_with(job, rank, "goes on", Deadline::after_seconds(20)); !more.ok()) {
      return which + more.status().to_string();
    }
    on = std::max(on, seconds_since(stopped) * 1e3);
  }
  if (named == 0) return which + "nobody named it before it was given up";
  if (evicted < 1000) return text(which, "given up after ", evicted, " ms, before the limit");
  job.signal(stop.victim, SIGCONT);
  auto fenced = line_with(job, stop.victim, "ended", Deadline::after_seconds(20));
  if (!fenced.ok()) return which + fenced.status().to_string();
  if (fenced->find("evicted") == std::string::npos || fenced->find("went on without") == std::string::npos) {
    return which + *fenced;
  }
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(20));
  if (!codes.ok()) return which + codes.status().to_string();
  for (int code : *codes) {
    if (code != 0) return text(which, "a rank ended with ", code);
  }
  return text("ok ", stop.transport, " ", named, " ", evicted, " ", on);
}

TEST(FreezeStorm, StoppedRanksAreNamedGivenUpAtTheLimitAndFencedWhenTheyWake) {
  const uint64_t seed = test_seed("FreezeStorm");
  const uint64_t thaws = test_count("TEST_THAWS", 6, 200);
  // They mostly wait.
  const size_t lanes = static_cast<size_t>(std::min<uint64_t>(thaws, 3));
  std::map<std::string, std::vector<double>> named, evicted, on;
  uint64_t held = 0;
  for (const std::string& line : run_lanes(lanes, seed, thaws, stop_and_thaw)) {
    std::istringstream words(line);
    std::string verdict, transport;
    double times[3] = {};
    if (!(words >> verdict >> transport >> times[0] >> times[1] >> times[2]) || verdict != "ok") {
      ADD_FAILURE() << line;
      continue;
    }
    ++held;
    named[transport].push_back(times[0]);
    evicted[transport].push_back(times[1]);
    on[transport].push_back(times[2]);
  }
  for (const auto& [transport, values] : named) {
    const size_t count = values.size();
    std::printf("  %s, SIGSTOP to named, %zu: %s (aim: p99 1000)\n", transport.c_str(), count,
                percentiles_text(values).c_str());
    std::printf("  %s, SIGSTOP to given up by all, limit 1 s, %zu: %s (aim: p99 1500)\n", transport.c_str(), count,
                percentiles_text(evicted[transport]).c_str());
    std::printf("  %s, SIGSTOP to next result of all, %zu: %s\n", transport.c_str(), count,
                percentiles_text(on[transport]).c_str());
  }
  EXPECT_EQ(held, thaws);
}

class Freeze : public testing::TestWithParam<const char*> {};

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
