// Survivors go on in place (Runtime::reform): ranks are killed at random instants, also while the others reform, the
// coordinator among them; and what can go wrong without anybody being killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <bit>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "tests/lanes.h"
#include "tests/runtime_job.h"
#include "tests/two_hosts.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

constexpr auto kHangLimit = std::chrono::seconds(10);
constexpr int kStepsAfter = 10;

/// Which ranks die and when. Seats are the ranks that they start with.
struct Storm {
  uint64_t seed = 0;
  int ranks = 4;
  const char* variable = "TEST_STORMS";  ///< Of a run of this one alone.
  const char* transport = "shm";
  struct Blow {
    int seat = 0;
    std::chrono::microseconds after{};  ///< After the one before.
  };
  std::vector<Blow> blows;

  /// With `leads` it is always the lowest of those that are left, and every second time another follows while the
  /// others make the next job.
  explicit Storm(uint64_t with_seed, bool leads = false)
      : seed(with_seed), variable(leads ? "TEST_LEADERS" : "TEST_STORMS") {
    std::seed_seq words{seed, seed >> 32};
    std::mt19937_64 random(words);
    constexpr const char* kTransports[] = {"shm", "tcp", "mixed"};
    transport = kTransports[random() % 3];
    ranks = 3 + static_cast<int>(random() % 4);
    const size_t most = leads ? std::min(2, ranks - 2) : ranks - 2;
    const size_t kills = 1 + random() % most;
    std::set<int> left;
    for (int seat = 0; seat < ranks; ++seat) left.insert(seat);
    while (blows.size() < kills) {
      // Every second time whoever leads the change that is under way.
      auto victim = left.begin();
      if (random() % 2 == 0 && !leads) std::advance(victim, random() % left.size());
      const uint64_t longest = blows.empty() ? 10'000 : 6'000;
      blows.push_back({*victim, std::chrono::microseconds(random() % longest)});
      left.erase(victim);
    }
  }
  bool dies(int seat) const {
    return std::any_of(blows.begin(), blows.end(), [&](const Blow& blow) { return blow.seat == seat; });
  }
  int left() const { return ranks - static_cast<int>(blows.size()); }
  std::string to_string() const {
    std::string words = text("TEST_SEED=", seed, " ", variable, "=1 (", transport, ", ", ranks, " ranks");
    for (const Blow& blow : blows) words += text(", rank ", blow.seat, " after ", blow.after.count(), " us");
    return words + ")";
  }
};

Status wrong(const std::string& words) { return {Code::kInternal, words}; }

Call sum_in_place(std::string name, std::vector<uint64_t>& values) {
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kU64;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = call.output = bytes_of(values);
  return call;
}

/// The rank that a test rank started with says in each sum whether it is in it.
uint64_t share_of(int seat) { return uint64_t{1} << (4 * seat); }

/// A sum is right when every member is in it once. Which they are is told, and compared by the test.
Status check_sum(const std::vector<uint64_t>& values, int seat, int members) {
  for (uint64_t value : values) {
    if ((value & ~uint64_t{0x1111'1111'1111'1111}) != 0 || std::popcount(value) != members ||
        (value & share_of(seat)) == 0) {
      return wrong(text("a sum of ", std::hex, value, " with ", std::dec, members, " members on seat ", seat));
    }
  }
  return {};
}

struct Sum {
  Status status;
  uint64_t value = 0;
};

Sum sum_once(Runtime& runtime, int seat, int set, int members, size_t count) {
  std::vector<uint64_t> values(count, share_of(seat));
  auto handle = runtime.submit(set, {sum_in_place("sum", values)});
  if (!handle.ok()) return {handle.status()};
  const Status status = runtime.wait(set, *handle, Deadline::after(kHangLimit));
  if (status.ok()) return {check_sum(values, seat, members), values[0]};
  for (uint64_t value : values) {
    if (value != share_of(seat)) return {wrong("a failed sum has changed its input")};
  }
  return {status};
}

/// Set 1 is the two highest ranks of the start; its numbers follow those of the job, and it lives as long as both.
Status check_pair(Runtime& runtime, int seat, int ranks, uint64_t last_sum) {
  const uint64_t pair = share_of(ranks - 1) | share_of(ranks - 2);
  const bool lives = (last_sum & pair) == pair;
  const auto members = runtime.set_ranks(1);
  if (members.ok() != lives) return wrong(text("process set 1 ", lives ? "is gone" : "is still there"));
  if (!lives) return {};
  if (*members != std::vector<int>{runtime.size() - 2, runtime.size() - 1}) return wrong("ranks of set 1");
  if (seat < ranks - 2) return {};
  const Sum sum = sum_once(runtime, seat, 1, 2, 100);
  return sum.status.ok() && sum.value != pair ? wrong("the sum of set 1") : sum.status;
}

/// Sums until everybody has died who is to die, and a little longer. What it tells must be equal on all survivors.
Status rank_in_storm(Runtime& runtime, const Storm& storm) {
  const int seat = runtime.rank();
  tell("ready\n");
  uint64_t done = 0;
  for (int after = 0; after < kStepsAfter;) {
    const int members = runtime.size();
    const size_t count = 1 + (done * 7919 + storm.seed) % 30'000;
    const Sum sum = sum_once(runtime, seat, 0, members, count);
    if (sum.status.ok()) {
      if (++done == 1 || members == storm.left()) after += members == storm.left() ? 1 : 0;
      if (after == 1) tell(text("on ", Clock::now().time_since_epoch().count(), " ", std::hex, sum.value, "\n"));
      if (after == 1) HORO_TRY(check_pair(runtime, seat, storm.ranks, sum.value));
      continue;
    }
    if (sum.status.code() != Code::kPeerLost) return sum.status;
    for (int lost : sum.status.lost()) {
      if (lost < 0 || lost >= members || lost == runtime.rank()) return wrong(text("rank ", lost, " cannot be lost"));
    }
    tell(text("failed ", members, " ", done, "\n"));
    HORO_TRY(runtime.reform(Deadline::after(kHangLimit)));
    if (runtime.size() >= members || runtime.rank() > seat) return wrong("numbers after the change");
    after = 0;
    done = 0;
  }
  HORO_TRY(runtime.wait(0, *runtime.submit(0, {[] {
                                             Call barrier;
                                             barrier.tensor.name = "the end";
                                             barrier.tensor.kind = Kind::kBarrier;
                                             return barrier;
                                           }()})));
  return {};
}

/// Empty when all survivors told the same and ended well.
std::string judge(Job& job, const Storm& storm, Time killed, double& milliseconds) {
  const Deadline limit(killed + kHangLimit + kHangLimit);
  std::set<std::string> stories;
  std::string all;
  for (int seat = 0; seat < storm.ranks; ++seat) {
    if (storm.dies(seat)) continue;
    std::string story;
    while (true) {
      auto line = job.next_line(seat, limit);
      if (!line.ok()) return text("rank ", seat, " hangs or has ended: ", line.status().to_string(), all, story);
      std::istringstream words(*line);
      std::string verdict;
      int64_t at = 0;
      uint64_t sum = 0;
      words >> verdict;
      if (verdict == "on" && words >> at >> std::hex >> sum) {
        milliseconds = std::max(milliseconds, static_cast<double>(at - killed.time_since_epoch().count()) / 1e6);
        story += text("; on with ", std::hex, sum);
        break;
      }
      if (verdict != "failed") return text("rank ", seat, ": ", *line, all, story);
      story += "; " + *line;
    }
    stories.insert(story);
    all += text(" | rank ", seat, story);
  }
  if (stories.size() != 1) return text("the survivors tell different stories:", all);
  auto codes = job.wait(limit);
  if (!codes.ok()) return text("does not end: ", codes.status().to_string());
  for (int seat = 0; seat < storm.ranks; ++seat) {
    const int code = (*codes)[static_cast<size_t>(seat)];
    if (code != (storm.dies(seat) ? -SIGKILL : 0))
      return text("rank ", seat, " ended with ", code, ": ", job.told(seat));
  }
  return "";
}

std::string verdict_of(const Storm& storm) {
  const char* log = std::getenv("TEST_LOG");
  JobOptions options{
      .ranks = storm.ranks,
      .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_LOG_LEVEL", log != nullptr ? log : "error"}}};
  if (storm.transport == std::string("tcp")) options.environment["HORO_TRANSPORT"] = "tcp";
  if (storm.transport == std::string("mixed")) {
    options.per_rank = [](int rank) {
      return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank % 2)}};
    };
  }
  const StatusBody body = [&](Runtime& runtime) { return rank_in_storm(runtime, storm); };
  auto job = start(options, body, {{storm.ranks - 2, storm.ranks - 1}});
  if (!job) return text("wrong ", storm.to_string(), ": no job");
  std::string wrong;
  for (int seat = 0; seat < storm.ranks && wrong.empty(); ++seat) {
    auto line = job->next_line(seat, Deadline::after(kHangLimit));
    if (!line.ok() || *line != "ready") wrong = text("rank ", seat, " did not start");
  }
  Time killed{};
  for (const Storm::Blow& blow : storm.blows) {
    // The instant is random; a victim may have told of a failure before it is killed itself.
    if (wrong.empty()) (void)job->next_line(blow.seat, Deadline::after(blow.after)).ok();
    killed = Clock::now();
    job->signal(blow.seat, SIGKILL);
  }
  double milliseconds = 0;
  if (wrong.empty()) wrong = judge(*job, storm, killed, milliseconds);
  job.reset();
  if (auto left = reap_orphans(); wrong.empty()) wrong = left;
  if (!wrong.empty()) return text("wrong ", storm.to_string(), ": ", wrong);
  return text("ok ", storm.transport, storm.blows.size() == 1 ? ", one kill" : ", several kills", " | ", milliseconds);
}

/// Runs them, prints how long they took, and returns how many held.
uint64_t run_storms(uint64_t seed, uint64_t storms, bool leads, const char* aim) {
  std::map<std::string, std::vector<double>> times;
  uint64_t held = 0;
  const auto verdict = [leads](uint64_t one) { return verdict_of(Storm(one, leads)); };
  for (const std::string& line : run_lanes(std::min<uint64_t>(storms, 2), seed, storms, verdict)) {
    const size_t bar = line.find(" | ");
    if (line.rfind("ok ", 0) != 0 || bar == std::string::npos) {
      ADD_FAILURE() << line;
      continue;
    }
    ++held;
    times[leads ? "lowest rank killed" : line.substr(3, bar - 3)].push_back(std::stod(line.substr(bar + 3)));
  }
  for (const auto& [what, values] : times) {
    std::printf("  %-20s %4zu storms, last kill to first sum without: %s (%s)\n", what.c_str(), values.size(),
                percentiles_text(values).c_str(), aim);
  }
  return held;
}

TEST(ReformStorm, SurvivorsOfAnyNumberOfKillsGoOnInPlaceWithRightSums) {
  const uint64_t seed = test_seed("ReformStorm");
  const uint64_t storms = test_count("TEST_STORMS", 100, 2000);
  EXPECT_EQ(run_storms(seed, storms, false, "aim of one kill: p50 20, p99 100"), storms);
}

TEST(ReformStorm, WhoeverLeadsMayBeKilledAlsoInTheMiddleOfAChange) {
  const uint64_t seed = test_seed("ReformStorm");
  const uint64_t storms = test_count("TEST_LEADERS", 20, 200);
  EXPECT_EQ(run_storms(seed, storms, true, "aim: p99 500"), storms);
}

/// The sum of ones over a set; 0 when it fails.
float count_members(Runtime& runtime, int set = 0) {
  std::vector<float> values(1000, 1.0F);
  return allreduce(runtime, "count", values, set).ok() ? values[0] : 0;
}

Status fail_until_reformed(Runtime& runtime) {
  Status status;
  while (status.ok()) {
    std::vector<float> values(10, 1.0F);
    status = allreduce(runtime, "until", values);
  }
  return status;
}

TEST(Reform, WithoutALossTheSameRanksBeginAnewAndSetsGoOn) {
  for (const char* transport : {"shm", "tcp"}) {
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}}},
                     [](Runtime& runtime) {
                       REQUIRE(count_members(runtime) == 3.0F);
                       const int rank = runtime.rank();
                       // Two of them find out from the third, which has left the old world, or from each other.
                       if (rank != 1) {
                         const Status why = fail_until_reformed(runtime);
                         REQUIRE(why.message().find("has ended the group") != std::string::npos);
                       }
                       REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
                       REQUIRE(runtime.rank() == rank && runtime.size() == 3);
                       REQUIRE(count_members(runtime) == 3.0F);
                       if (rank != 2) REQUIRE(count_members(runtime, 1) == 2.0F);
                       auto added = runtime.add_set({1, 2});
                       REQUIRE_OK(added.status());
                       if (rank != 0) REQUIRE(count_members(runtime, *added) == 2.0F);
                       return leave_together(runtime);
                     },
                     {{0, 1}});
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Reform, RanksAreNumberedAnewAndSetsAreMadeByTheNewNumbers) {
  Hold hold;
  auto job = start({.ranks = 4}, [&](Runtime& runtime) {
    hold.take_part();
    const int seat = runtime.rank();
    if (seat == 1) raise(SIGKILL);
    const Status lost = fail_until_reformed(runtime);
    REQUIRE(lost.code() == Code::kPeerLost && lost.lost() == std::vector<int>{1});
    REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
    REQUIRE(runtime.size() == 3 && runtime.rank() == (seat == 0 ? 0 : seat - 1));
    REQUIRE(runtime.position().local_rank == runtime.rank() && runtime.position().local_size == 3);
    auto added = runtime.add_set({1, 2});
    REQUIRE_OK(added.status());
    REQUIRE(*runtime.set_ranks(*added) == (std::vector<int>{1, 2}));
    if (seat > 1) REQUIRE(count_members(runtime, *added) == 2.0F);
    // Roots, and who is named in errors, are ranks as they are now.
    std::vector<float> values(4, static_cast<float>(runtime.rank()));
    Call call = call_of("told", Kind::kBroadcast, values);
    call.output = bytes_of(values);
    call.tensor.root = 2;
    REQUIRE_OK(runtime.wait(0, *runtime.submit(0, {call})));
    REQUIRE(values == std::vector<float>(4, 2.0F));
    std::vector<float> odd(runtime.rank() == 2 ? 5 : 4, 1.0F);
    const Status mismatch = allreduce(runtime, "odd", odd);
    REQUIRE(mismatch.message().find("[4] on ranks 0, 1") != std::string::npos);
    REQUIRE(mismatch.message().find("[5] on rank 2") != std::string::npos);
    tell("mismatch\n");
    if (runtime.rank() == 2) {
      REQUIRE(hold.wait(Deadline::after(kHangLimit)));  // Until the others have heard of it, too.
      raise(SIGKILL);
    }
    REQUIRE(fail_until_reformed(runtime).lost() == std::vector<int>{2});
    REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
    REQUIRE(runtime.size() == 2 && count_members(runtime) == 2.0F);
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  for (int seat : {0, 2}) EXPECT_TRUE(job->next_line(seat, Deadline::after(kHangLimit)).ok()) << seat;
  hold.let_go();
  auto codes = job->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, (std::vector<int>{0, -SIGKILL, 0, -SIGKILL}));
}

TEST(Reform, ARankThatIsAliveAndDoesNotComeIsWaitedForAsLongAsTold) {
  Hold hold;
  auto job = start({.ranks = 3}, [&](Runtime& runtime) {
    hold.take_part();
    if (runtime.rank() == 2) raise(SIGKILL);
    REQUIRE(fail_until_reformed(runtime).code() == Code::kPeerLost);
    if (runtime.rank() == 0) {
      const Status late = runtime.reform(Deadline::after(std::chrono::milliseconds(300)));
      REQUIRE(late.code() == Code::kTimeout);
      REQUIRE(late.message().find("not all of ranks 0, 1 came") != std::string::npos);
      tell("late\n");
      return 0;  // And with it the wait of the other ends.
    }
    REQUIRE(hold.wait(Deadline::after(kHangLimit)));
    REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
    REQUIRE(runtime.size() == 1 && count_members(runtime) == 1.0F);
    return 0;
  });
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->next_line(0, Deadline::after(kHangLimit)).ok());
  hold.let_go();
  auto codes = job->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, (std::vector<int>{0, 0, -SIGKILL})) << job->told(0) << job->told(1);
}

TEST(Reform, ARankThatFreezesMeanwhileIsLeftOutAndStaysOut) {
  auto job = start({.ranks = 4, .environment = {{"HORO_FREEZE_TIMEOUT", "500ms"}, {"HORO_LOG_LEVEL", "off"}}},
                   [](Runtime& runtime) {
                     const int seat = runtime.rank();
                     if (seat == 3) raise(SIGKILL);
                     REQUIRE(fail_until_reformed(runtime).code() == Code::kPeerLost);
                     if (seat == 1) {
                       tell("stops\n");
                       raise(SIGSTOP);
                       const Status late = runtime.reform(Deadline::after(kHangLimit));
                       tell(late.to_string() + "\n");
                       REQUIRE(late.code() == Code::kEvicted);
                       return 0;
                     }
                     REQUIRE_OK(runtime.reform(Deadline::after(kHangLimit)));
                     REQUIRE(runtime.size() == 2 && count_members(runtime) == 2.0F);
                     tell("on\n");
                     return leave_together(runtime);
                   });
  ASSERT_TRUE(job);
  for (int seat : {1, 0, 2}) ASSERT_TRUE(job->next_line(seat, Deadline::after(kHangLimit)).ok()) << seat;
  job->signal(1, SIGCONT);
  auto codes = job->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, (std::vector<int>{0, 0, 0, -SIGKILL})) << job->told(1);
}

TEST(Reform, OfTwoRanksTheHigherDoesNotGoOnWhenTheLowerIsOnlySilent) {
  auto job = start({.ranks = 2, .environment = {{"HORO_FREEZE_TIMEOUT", "500ms"}, {"HORO_LOG_LEVEL", "off"}}},
                   [](Runtime& runtime) {
                     if (runtime.rank() == 0) {
                       tell("stops\n");
                       raise(SIGSTOP);
                       return 0;
                     }
                     REQUIRE(fail_until_reformed(runtime).code() == Code::kPeerLost);
                     const Status alone = runtime.reform(Deadline::after(kHangLimit));
                     REQUIRE(alone.code() == Code::kUnavailable);
                     REQUIRE(alone.message().find("rank 0 may be alive") != std::string::npos);
                     return 0;
                   });
  ASSERT_TRUE(job);
  ASSERT_TRUE(job->next_line(0, Deadline::after(kHangLimit)).ok());
  ASSERT_FALSE(job->next_line(1, Deadline::after(kHangLimit)).ok());  // Has ended.
  job->signal(0, SIGCONT);
  expect_zero(*job);
}

// The kernel gives up what nobody acknowledges, here long before the rank would count as frozen. That is no death: on
// both sides of a cable that is cut it looks the same.
TEST(Reform, OfTwoHostsThatAreCutOffOneGoesOnThoughTheKernelGivesTheConnectionsUp) {
  TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and the ip program)";
  JobOptions options{.ranks = 2, .environment = {{"HORO_FREEZE_TIMEOUT", "60s"}, {"HORO_LOG_LEVEL", "off"}}};
  options.enter = [&hosts](int rank) {
    return hosts.enter(rank) && (std::ofstream("/proc/sys/net/ipv4/tcp_retries2") << 2 << std::flush).good();
  };
  options.store_at = "10.77.0.1:0";
  auto job = start(options, [](Runtime& runtime) {
    const int before = runtime.rank();
    REQUIRE(count_members(runtime) == 2.0F);
    tell("ready\n");
    REQUIRE(fail_until_reformed(runtime).code() == Code::kPeerLost);
    const Status alone = runtime.reform(Deadline::after(kHangLimit));
    if (before == 0) {
      REQUIRE_OK(alone);
      REQUIRE(count_members(runtime) == 1.0F);
    } else {
      REQUIRE(alone.code() == Code::kUnavailable);
    }
    return 0;
  });
  ASSERT_TRUE(job);
  for (int rank : {0, 1}) ASSERT_TRUE(job->next_line(rank, Deadline::after(kHangLimit)).ok()) << rank;
  ASSERT_TRUE(hosts.cut());
  expect_zero(*job);
}

}  // namespace
}  // namespace horo::test
