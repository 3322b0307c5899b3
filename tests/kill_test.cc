// The kill storm: one of four ranks is killed from outside at a random instant of random collectives, again and again.
// Whoever survives must agree on what succeeded, hold exact results or untouched inputs, and go on without the victim.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <set>
#include <sstream>

#include "tests/job.h"
#include "tests/lanes.h"
#include "tests/workload.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::test {
namespace {

constexpr int kRanks = 4;
constexpr auto kHangLimit = std::chrono::seconds(10);
constexpr uint64_t kLeftAlone = 0x0707070707070707;
constexpr uint64_t kTurnsAfter = 1'000'000;  // Turns of the group of the survivors, apart from those of the world.

enum class Transport : uint8_t { kShm, kTcp, kMixed };
const char* name(Transport transport) {
  return transport == Transport::kShm ? "shm" : transport == Transport::kTcp ? "tcp" : "mixed";
}

/// What the group must have run over.
const char* transport_of(Transport transport) { return transport == Transport::kMixed ? "shm+tcp" : name(transport); }

struct Kill {
  uint64_t seed = 0;
  Transport transport = Transport::kShm;
  int ranks = kRanks;
  int victim = 0;
  const char* hosts = "aaaa";  ///< Of each rank.
  bool library = false;        ///< Calls are made in memory that the library allocated.
  bool read = false;           ///< Ranks die while others read their memory, or they another's.
  bool children = false;       ///< Each rank has a forked and a spawned child alive.
  std::chrono::microseconds after{};

  explicit Kill(uint64_t with_seed) : seed(with_seed) {
    std::seed_seq words{seed, seed >> 32};
    std::mt19937_64 random(words);
    const uint64_t kind = random() % 8;
    transport = kind < 3 ? Transport::kShm : kind < 5 ? Transport::kTcp : Transport::kMixed;
    if (test_count("TEST_MIXED", 0) > 0) transport = Transport::kMixed;
    victim = static_cast<int>(random() % kRanks);
    children = random() % 3 == 0;
    library = random() % 3 == 0;
    read = transport == Transport::kShm && random() % 3 == 0;
    after = std::chrono::microseconds(random() % 15'000);
    constexpr const char* kMixtures[] = {"aabb", "aaab", "abbc", "abab"};
    if (transport == Transport::kMixed) hosts = kMixtures[random() % std::size(kMixtures)];
  }
  /// Two ranks that exchange messages: the caller's memory is written while an operation runs.
  static Kill of_two(uint64_t seed) {
    Kill kill(seed);
    kill.transport = Transport::kTcp;
    kill.ranks = 2;
    kill.victim %= kill.ranks;
    kill.read = false;
    return kill;
  }
  std::string to_string() const {
    return text("TEST_SEED=", seed, ranks == 2 ? " TEST_KILLS_OF_TWO=1 (" : " TEST_KILLS=1 (", name(transport), " ",
                hosts, ", victim ", victim, library ? ", in the library's memory" : "",
                read ? ", reading each other's" : "", children ? ", with children" : "", ", after ", after.count(),
                " us)");
  }
};

struct Times {
  double error_ms = 0;  ///< From the kill to the last survivor's error.
  double go_on_ms = 0;  ///< From the kill to the last survivor's first result without the victim.
};

/// Workers of a rank, as a data loader makes them. They live until the test closes its end of `hold`.
Status start_children(const int hold[2]) {
  const pid_t forked = fork();
  if (forked == 0) {
    char byte = 0;
    while (read(hold[0], &byte, 1) > 0) {
    }
    _exit(0);
  }
  const pid_t spawned = fork();
  if (spawned == 0) {
    dup2(hold[0], STDIN_FILENO);
    execl(HORO_TEST_PROGRAMS "/test_idle", "test_idle", nullptr);
    _exit(127);
  }
  return forked > 0 && spawned > 0 ? Status() : Status(Code::kUnavailable, "cannot fork a worker");
}

/// What the victim has touched, beside what it uses: the kernel takes it down before it closes a single descriptor.
uint64_t victim_mebibytes() { return test_count("TEST_VICTIM_MIB", 0); }

Status become_large() {
  const size_t bytes = victim_mebibytes() << 20;
  if (bytes == 0) return {};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {Code::kUnavailable, "no memory for a large victim"};
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // Small pages take longest to give back.
  for (size_t at = 0; at < bytes; at += page_size()) static_cast<volatile char*>(memory)[at] = 1;
  return {};
}

int complain(const std::string& words) {
  tell(text("wrong ", words, "\n"));
  return 3;
}

int64_t nanoseconds(Time time) { return time.time_since_epoch().count(); }

constexpr uint64_t kMostElements = 512 * 1024;

Result<std::span<uint64_t>> memory_for_calls(group::Engine& engine, const Kill& kill) {
  if (!kill.library) return std::span<uint64_t>();
  const uint64_t elements = 2 * kMostElements + RandomCall::kBeside;
  HORO_ASSIGN(auto memory, engine.allocate(elements * sizeof(uint64_t)));
  return std::span(reinterpret_cast<uint64_t*>(memory.data()), elements);
}

/// Empty, or what is wrong with the caller's memory after a failure.
std::string lost_contents(const Kill& kill, const RandomCall& call, const Status& status) {
  if (status.contents_intact()) return call.changed_input();
  return kill.library && call.in_place() ? "" : "the contents are said to be lost, which were staged";
}

/// After the loss: everything else on the old group fails, and the survivors make a group that works.
int go_on(group::Engine& engine, const Kill& kill, uint64_t turn) {
  group::Group& world = engine.world();
  for (uint64_t later = turn + 1; later <= turn + 2; ++later) {
    RandomCall call({.seed = kill.seed, .turn = later, .most_elements = 1000}, world.ranks(), world.member());
    const Status status = call.run(world);
    if (status.code() != Code::kPeerLost) return complain(text("after the loss: ", status.to_string()));
    if (auto changed = call.changed_input(); !changed.empty()) return complain(changed);
  }
  std::vector<int> rest = world.ranks();
  std::erase(rest, kill.victim);
  auto group = engine.create_group(rest, Deadline::after(kHangLimit));
  if (!group.ok()) return complain(text("no group of the survivors: ", group.status().to_string()));
  for (uint64_t later = kTurnsAfter; later < kTurnsAfter + 4; ++later) {
    RandomCall call({.seed = kill.seed, .turn = later, .most_elements = 20'000}, rest, (*group)->member());
    const Status status = call.run(**group, Deadline::after(kHangLimit));
    if (!status.ok()) return complain(text("the survivors cannot go on: ", status.to_string()));
    if (auto wrong = call.wrong_result(); !wrong.empty()) return complain(text("without the victim: ", wrong));
    if (later == kTurnsAfter) tell(text("on ", nanoseconds(Clock::now()), "\n"));
  }
  return 0;
}

int rank_under_fire(group::Engine& engine, const Kill& kill, const int hold[2]) {
  close(hold[1]);
  group::Group& world = engine.world();
  if (world.transport_name() != transport_of(kill.transport)) {
    return complain(text("unexpected transport ", world.transport_name()));
  }
  if (kill.children) {
    if (Status status = start_children(hold); !status.ok()) return complain(status.to_string());
  }
  if (engine.rank() == kill.victim) {
    if (Status status = become_large(); !status.ok()) return complain(status.to_string());
  }
  auto memory = memory_for_calls(engine, kill);
  if (!memory.ok()) return complain(memory.status().to_string());
  tell("ready\n");
  for (uint64_t turn = 1;; ++turn) {
    RandomCall call(
        {.seed = kill.seed, .turn = turn, .most_elements = kMostElements, .memory = *memory, .read = kill.read},
        world.ranks(), world.member());
    const Status status = call.run(world);
    const Time now = Clock::now();
    if (status.ok()) {
      if (auto wrong = call.wrong_result(); !wrong.empty()) return complain(wrong);
      const bool sums = call.operation().kind == collective::Kind::kAllreduce;
      if (sums && kill.transport == Transport::kMixed && world.algorithm_name() != "hierarchy+direct") {
        return complain(text("an allreduce over hosts ran as ", world.algorithm_name()));
      }
      continue;
    }
    if (auto lost = lost_contents(kill, call, status); !lost.empty()) return complain(lost);
    std::fill(memory->begin(), memory->end(), kLeftAlone);
    if (status.lost() != std::vector<int>{kill.victim}) {
      return complain(text("operation ", turn, " (", call.to_string(), "): ", status.to_string()));
    }
    // The first failure: that its number is equal everywhere says that every operation before succeeded everywhere.
    tell(text("failed ", status.operation().value_or(0), " ", code_name(status.code()), " ", nanoseconds(now), " in ",
              call.to_string(), "\n"));
    if (int code = go_on(engine, kill, turn); code != 0) return code;
    const bool alone = std::all_of(memory->begin(), memory->end(), [](uint64_t value) { return value == kLeftAlone; });
    return alone ? 0 : complain("somebody wrote to the caller's memory after the operation had failed");
  }
}

/// Empty when the survivors said what they should.
std::string judge(Job& job, const Kill& kill, Time killed, Times& times) {
  const Deadline limit(killed + kHangLimit);
  std::set<std::string> outcomes;
  std::string all;
  for (int rank = 0; rank < kill.ranks; ++rank) {
    if (rank == kill.victim) continue;
    auto line = job.next_line(rank, limit);
    if (!line.ok()) return text("rank ", rank, " hangs or has ended: ", line.status().to_string());
    std::istringstream words(*line);
    std::string verdict, number, code;
    int64_t at = 0;
    if (!(words >> verdict >> number >> code >> at) || verdict != "failed") {
      return text("rank ", rank, ": ", *line, all);
    }
    outcomes.insert(text("operation ", number, ": ", code));
    all += text("\n  rank ", rank, ": ", *line);
    times.error_ms = std::max(times.error_ms, static_cast<double>(at - nanoseconds(killed)) / 1e6);
  }
  if (outcomes.size() != 1) return text("the survivors disagree:", all);
  for (int rank = 0; rank < kill.ranks; ++rank) {
    if (rank == kill.victim) continue;
    auto line = job.next_line(rank, limit);
    int64_t at = 0;
    if (!line.ok()) return text("rank ", rank, " cannot go on: ", line.status().to_string());
    if (std::sscanf(line->c_str(), "on %ld", &at) != 1) return text("rank ", rank, ": ", *line);
    times.go_on_ms = std::max(times.go_on_ms, static_cast<double>(at - nanoseconds(killed)) / 1e6);
  }
  auto codes = job.wait(limit);
  if (!codes.ok()) return text("does not end: ", codes.status().to_string());
  for (int rank = 0; rank < kill.ranks; ++rank) {
    const int code = (*codes)[static_cast<size_t>(rank)];
    if (code != (rank == kill.victim ? -SIGKILL : 0)) return text("rank ", rank, " ended with ", code);
  }
  return "";
}

/// Empty when everything is as it should be.
std::string kill_one(const Kill& kill, Times& times) {
  JobOptions options{.ranks = kill.ranks,
                     .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_LOG_LEVEL", "error"}}};
  if (kill.transport == Transport::kTcp) options.environment["HORO_TRANSPORT"] = "tcp";
  if (kill.transport == Transport::kMixed) {
    options.per_rank = [&kill](int rank) {
      return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", std::string(1, kill.hosts[rank])}};
    };
  }
  int hold[2];
  if (pipe(hold) != 0) return "no pipe";
  auto job = Job::start(options, [&](group::Engine& engine) { return rank_under_fire(engine, kill, hold); });
  if (!job.ok()) return job.status().to_string();
  close(hold[0]);
  std::string wrong;
  for (int rank = 0; rank < kill.ranks && wrong.empty(); ++rank) {
    auto line = (*job)->next_line(rank, Deadline::after_seconds(60));
    if (!line.ok() || *line != "ready")
      wrong = text("rank ", rank, " did not start: ", line.ok() ? *line : line.status().to_string());
  }
  if (wrong.empty()) {
    // The instant is random; a rank that speaks before it has found something wrong.
    auto early = (*job)->next_line(kill.victim, Deadline::after(kill.after));
    if (early.ok()) wrong = text("rank ", kill.victim, " before it was killed: ", *early);
  }
  if (wrong.empty()) {
    const Time killed = Clock::now();
    (*job)->signal(kill.victim, SIGKILL);
    wrong = judge(**job, kill, killed, times);
  }
  close(hold[1]);
  job->reset();
  if (auto left = reap_orphans(); wrong.empty()) wrong = left;
  return wrong;
}

std::string verdict_of(const Kill& kill) {
  Times times;
  const std::string wrong = kill_one(kill, times);
  return wrong.empty() ? text("ok ", name(kill.transport), " ", times.error_ms, " ", times.go_on_ms)
                       : text("wrong ", kill.to_string(), ": ", wrong);
}

/// `aim` is what docs/failure.md aims at on a machine with nothing else to do; printed, not asserted.
void print_percentiles(const std::string& what, const std::vector<double>& values, const char* aim) {
  std::printf("  %-28s %4zu kills: %s%s\n", what.c_str(), values.size(), percentiles_text(values).c_str(), aim);
}

void storm(uint64_t seed, uint64_t kills, Kill (*make)(uint64_t seed)) {
  const size_t lanes = victim_mebibytes() > 0 ? 1 : static_cast<size_t>(std::min<uint64_t>(kills, 2));
  std::map<std::string, std::vector<double>> errors, go_ons;
  uint64_t held = 0;
  const auto run = [make](uint64_t one) { return verdict_of(make(one)); };
  for (const std::string& line : run_lanes(lanes, seed, kills, run)) {
    std::istringstream words(line);
    std::string verdict, transport;
    double error = 0, go_on = 0;
    if (words >> verdict >> transport >> error >> go_on && verdict == "ok") {
      ++held;
      errors[transport].push_back(error);
      go_ons[transport].push_back(go_on);
    } else {
      ADD_FAILURE() << line;
    }
  }
  for (const auto& [transport, values] : errors)
    print_percentiles(transport + ", kill to last error", values, " (aim: p50 10, p99 50, max 250)");
  for (const auto& [transport, values] : go_ons) print_percentiles(transport + ", kill to next result", values, "");
  EXPECT_EQ(held, kills);
}

TEST(KillStorm, SurvivorsAgreeKeepTheirInputsAndGoOn) {
  storm(test_seed("KillStorm"), test_count("TEST_KILLS", 500, 5000), [](uint64_t seed) { return Kill(seed); });
}

TEST(KillStorm, WhoeverIsLeftOfTwoKeepsItsInputs) {
  storm(test_seed("KillStormOfTwo"), test_count("TEST_KILLS_OF_TWO", 100, 5000), Kill::of_two);
}

}  // namespace
}  // namespace horo::test
