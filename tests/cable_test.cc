// Two hosts with a bad cable between them. What TCP can mend disturbs nobody; what it cannot see is found before
// anybody gets it, and the error names both ends of the link.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/faulty_cable.h"
#include "tests/job.h"
#include "tests/lanes.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 2;

JobOptions options_over(FaultyCable& cable, uint64_t seed, bool encrypt) {
  JobOptions options{.ranks = kRanks, .environment = {{"HORO_LOG_LEVEL", "off"}, {"HORO_TIMEOUT", "20s"}}};
  options.environment["HORO_ENCRYPT"] = encrypt ? "1" : "0";
  options.enter = [&cable](int rank) { return cable.enter(rank); };
  options.store_at = "10.78.0.1:0";
  options.store_through = [&cable, seed](const net::Address& store) {
    const Status status = cable.start(seed);
    HORO_CHECK(status.ok(), status.to_string());
    return store.to_string();
  };
  return options;
}

/// Random collectives, all checked, until the test lets go. Says "wrong ..." or "failed ...".
int exchange(group::Engine& engine, uint64_t seed, Hold& hold) {
  hold.take_part();
  tell("ready\n");
  group::Group& world = engine.world();
  for (uint64_t turn = 1;; ++turn) {
    uint64_t over = engine.rank() == 0 && hold.wait(Deadline::after_seconds(0)) ? 1 : 0;
    auto* bytes = reinterpret_cast<std::byte*>(&over);
    Status status = world.run(sum_of(1), bytes, bytes, Deadline::after_seconds(60));
    if (status.ok() && over > 1) tell(text("wrong: a sum of ", over, "\n"));
    if (status.ok() && over > 0) {
      tell(text("well ", turn, "\n"));
      return 0;
    }
    RandomCall call({.seed = seed, .turn = turn, .most_elements = 32 * 1024}, world.ranks(), world.member());
    if (status.ok()) {
      status = call.run(world, Deadline::after_seconds(60));
      const std::string wrong = status.ok() ? call.wrong_result() : call.changed_input();
      if (!wrong.empty()) tell(text("wrong: ", wrong, "\n"));
    }
    if (!status.ok()) {
      tell(text("failed ", code_name(status.code()), ": ", status.to_string(), "\n"));
      return 0;
    }
  }
}

class Cable : public testing::Test {
 protected:
  void SetUp() override {
    if (!FaultyCable().made()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and the ip program)";
  }
};

TEST_F(Cable, ThatLosesDelaysReordersRepeatsAndCutsPacketsDisturbsNobody) {
  const uint64_t seed = test_seed("Cable");
  const auto each = milliseconds(test_count("TEST_CABLE_MS", 400, 5000));
  const std::pair<const char*, Faults> kinds[] = {
      {"lost", {.lost = 0.02}},
      {"late and out of order", {.late = 0.1}},
      {"repeated", {.repeated = 0.1}},
      {"cut short", {.cut = 0.05}},
      {"all of it", {.lost = 0.01, .late = 0.05, .repeated = 0.05, .cut = 0.02, .most_late = milliseconds(2)}},
  };
  for (const bool encrypt : {false, true}) {
    FaultyCable cable;
    Hold hold;
    auto started = Job::start(options_over(cable, seed, encrypt),
                              [&](group::Engine& engine) { return exchange(engine, seed, hold); });
    ASSERT_TRUE(started.ok()) << started.status();
    Job& job = **started;
    for (int rank = 0; rank < kRanks; ++rank) {
      auto line = job.next_line(rank, Deadline::after_seconds(20));
      ASSERT_TRUE(line.ok() && *line == "ready") << line.status();
    }
    for (const auto& [name, faults] : kinds) {
      const uint64_t before = cable.hurt();
      cable.set(faults);
      // Says nothing while all is well, however slow it is.
      auto early = job.next_line(0, Deadline::after(each));
      EXPECT_EQ(early.status().code(), Code::kTimeout) << name << ": " << *early;
      EXPECT_GT(cable.hurt(), before) << "nothing was " << name;
    }
    cable.set({});
    hold.let_go();
    auto codes = job.wait(Deadline::after_seconds(60));
    ASSERT_TRUE(codes.ok()) << codes.status();
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string told = job.told(rank);
      EXPECT_EQ(told.rfind("well ", 0), 0u) << "rank " << rank << ": " << told;
      if (rank == 0) {
        std::printf("  %s: %llu of %llu packets hurt; rounds that went %s", encrypt ? "encrypted" : "plain",
                    static_cast<unsigned long long>(cable.hurt()), static_cast<unsigned long long>(cable.passed()),
                    told.c_str());
      }
    }
  }
}

/// One job, one flipped bit. "found CODE ENCRYPTED", or what is wrong.
std::string flip_one(uint64_t seed) {
  std::mt19937_64 random(seed);
  const bool encrypt = random() % 2 == 0;
  const uint32_t least = random() % 3 == 0 ? 1 : 512;  // Any packet, or one with data in it.
  FaultyCable cable;
  Hold hold;
  auto job = Job::start(options_over(cable, seed, encrypt),
                        [&](group::Engine& engine) { return exchange(engine, seed, hold); });
  if (!job.ok()) return text("wrong ", job.status().to_string());
  for (int rank = 0; rank < kRanks; ++rank) {
    auto line = (*job)->next_line(rank, Deadline::after_seconds(20));
    if (!line.ok() || *line != "ready") return text("wrong start of rank ", rank, ": ", line.status().to_string());
  }
  auto early = (*job)->next_line(0, Deadline::after(milliseconds(random() % 60)));
  if (early.ok()) return text("wrong before anything was flipped: ", *early);
  cable.flip_next(least);
  std::string code;
  bool named = false;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto line = (*job)->next_line(rank, Deadline::after_seconds(40));
    if (!line.ok()) return text("wrong: rank ", rank, " noticed nothing: ", line.status().to_string());
    if (line->rfind("failed ", 0) != 0) return text("wrong: rank ", rank, " says ", *line);
    const std::string word = line->substr(7, line->find(':') - 7);
    if (code.empty() || word == "corrupt") code = word;
    // Who has found it, and who hears of it, name the other end.
    named = named || line->find(text("rank ", 1 - rank)) != std::string::npos;
  }
  if (cable.flipped() != 1) return text("wrong: ", cable.flipped(), " bits were flipped");
  if (!named) return text("wrong: nobody names the other end of the link (", code, ")");
  auto codes = (*job)->wait(Deadline::after_seconds(30));
  if (!codes.ok()) return text("wrong: does not end: ", codes.status().to_string());
  return text("found ", code, encrypt ? " encrypted" : " plain");
}

TEST_F(Cable, ThatFlipsABitIsFoundOutAndBothEndsAreNamed) {
  const uint64_t seed = test_seed("Cable");
  const uint64_t flips = test_count("TEST_FLIPS", 12, 1000);
  std::map<std::string, uint64_t> found;
  uint64_t held = 0;
  for (const std::string& line : run_lanes(std::min<size_t>(flips, 2), seed, flips, [](uint64_t one) {
         const std::string verdict = flip_one(one);
         return verdict.rfind("found", 0) == 0 ? verdict : text("TEST_SEED=", one, " TEST_FLIPS=1 ", verdict);
       })) {
    if (line.rfind("found", 0) == 0) {
      ++held;
      ++found[line.substr(6, line.size() - 7)];
    } else {
      ADD_FAILURE() << line;
    }
  }
  for (const auto& [what, times] : found) {
    std::printf("  %s: %llu times\n", what.c_str(), static_cast<unsigned long long>(times));
  }
  EXPECT_EQ(held, flips);
}

}  // namespace
}  // namespace horo::test
