// Nothing is left behind: descriptors, memory, shared segments, processes.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <set>
#include <thread>

#include "tests/job.h"
#include "tests/process.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

Config config_of(const Environment::Variables& variables) {
  auto config = Config::read({group::kKnobs, rendezvous::kKnobs}, Environment(variables));
  HORO_CHECK(config.ok(), config.status().to_string());
  return *config;
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  DIR* folder = opendir("/dev/shm");
  while (dirent* entry = folder == nullptr ? nullptr : readdir(folder)) names.insert(entry->d_name);
  if (folder != nullptr) closedir(folder);
  return names;
}

bool sum_works(group::Group& group, uint64_t count) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = count;
  std::vector<uint64_t> values(count, 1);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return group.run(operation, bytes, bytes, Deadline::after_seconds(20)).ok() &&
         values == std::vector<uint64_t>(count, static_cast<uint64_t>(group.size()));
}

/// The least resident memory after any of `turns` turns: what the allocator and the threads keep for later comes and
/// goes.
template <class Turn>
double floor_of(uint64_t turns, const Turn& turn) {
  size_t least = SIZE_MAX;
  for (uint64_t i = 0; i < turns; ++i) {
    turn();
    least = std::min(least, resident_bytes());
  }
  return static_cast<double>(least);
}

/// What every turn leaves behind raises the floor.
template <class Turn>
void expect_no_leak(uint64_t turns, const Turn& turn) {
  const auto shared = shared_memory_files();
  const uint64_t stretch = turns / 3 + 1;
  floor_of(stretch, turn);  // Fills what libraries fill once.
  const size_t descriptors = open_descriptors();
  const double before = floor_of(stretch, turn);
  const double each = (floor_of(stretch, turn) - before) / static_cast<double>(stretch);
  EXPECT_EQ(open_descriptors(), descriptors);
  std::printf("  %llu starts and ends: %+.0f bytes each\n", static_cast<unsigned long long>(turns), each);
  EXPECT_LE(each, 4096) << "resident memory grows with every start";
  EXPECT_EQ(shared_memory_files(), shared);
}

TEST(Leak, OfAThousandEnginesOfOneRank) {
  const Config config = config_of({});
  expect_no_leak(test_count("HORO_TEST_STARTS", 1000), [&] {
    auto engine = group::Engine::start({.rank = 0, .size = 1, .config = config});
    ASSERT_TRUE(engine.ok()) << engine.status();
    ASSERT_TRUE(sum_works((*engine)->world(), 100));
  });
}

/// Two engines of one process, each with a thread of its own, meet, reduce and part.
void meet_and_part(const Config& config) {
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto engine = group::Engine::start({.rank = rank, .size = 2, .store = store, .config = config});
      ASSERT_TRUE(engine.ok()) << engine.status();
      EXPECT_TRUE(sum_works((*engine)->world(), 1000));
      EXPECT_TRUE(sum_works((*engine)->world(), 100'000));
      auto group = (*engine)->create_group({0, 1}, Deadline::after_seconds(20));
      ASSERT_TRUE(group.ok()) << group.status();
      EXPECT_TRUE(sum_works(**group, 10));
      (*engine)->remove_group(*group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Leak, OfTwoEnginesInOneProcessOverSharedMemory) {
  const Config config = config_of({{"HORO_STAGING", "8MiB"}});
  expect_no_leak(test_count("HORO_TEST_STARTS", 1000) / 10, [&] { meet_and_part(config); });
}

TEST(Leak, OfTwoEnginesInOneProcessOverSockets) {
  const Config config = config_of({{"HORO_TRANSPORT", "tcp"}, {"HORO_INTERFACE", "127.0.0.1"}});
  expect_no_leak(test_count("HORO_TEST_STARTS", 1000) / 10, [&] { meet_and_part(config); });
}

TEST(Leak, OfKilledJobs) {
  for (const char* transport : {"shm", "tcp"}) {
    JobOptions options{.ranks = 3, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
    options.environment["HORO_LOG_LEVEL"] = "off";
    expect_no_leak(30, [&] {
      Hold hold;
      auto job = Job::start(options, [&](group::Engine& engine) {
        hold.take_part();
        if (!sum_works(engine.world(), 100'000)) return 3;
        tell("ready\n");
        while (sum_works(engine.world(), 100'000)) {
        }
        return 0;
      });
      ASSERT_TRUE(job.ok()) << job.status();
      for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE((*job)->next_line(rank, Deadline::after_seconds(20)).ok());
      for (int rank = 0; rank < 3; ++rank) (*job)->signal(rank, SIGKILL);
      auto codes = (*job)->wait(Deadline::after_seconds(10));
      ASSERT_TRUE(codes.ok()) << codes.status();
    });
  }
}

}  // namespace
}  // namespace horo::test
